from __future__ import annotations

import datetime
from typing import Any

import pytest

from helios.errors import CoreError, RequestError
from helios.frontend.budget import RenderBudget
from helios.frontend.template import ChatTemplate
from tests.frontend.vocabularies import CHAT_TEMPLATE

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]


def _render(source: str, messages: list[dict[str, Any]] | None = None, **variables: Any) -> str:
    template = ChatTemplate(
        source,
        {"bos_token": "<s>", "eos_token": "</s>"},
        now=lambda: datetime.datetime(2031, 5, 9),
    )
    return template.render(MESSAGES if messages is None else messages, variables=variables)


def test_messages_and_the_generation_prompt_are_rendered() -> None:
    assert _render(CHAT_TEMPLATE) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{{ pad_token is defined }}", "False"),
        ("{{ tools is none }}{{ documents is none }}", "TrueTrue"),
        ("  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{{ {'b': 'é<\\'>&', 'a': [1, none]} | tojson }}", '{"b": "é<\'>&", "a": [1, null]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
        ("{{ strftime_now('%d %b %Y') }}", "09 May 2031"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
         "13"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{% generation %}a{{ bos_token }}{% endgeneration %}b", "a<s>b"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
         "{% endfor %}{{ ns.n }}", "2"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(1) }}{{ f('é') }}", "[1][é]"),
        ("{{ messages[0]['content'].strip().split('i')[0] }}", "H"),
        ("{{ messages[0].content is string }}", "True"),
        ("{{ thinking }}", "on"),
    ],
)  # fmt: skip
def test_templates_render_as_hugging_face_renders_them(source: str, expected: str) -> None:
    assert _render(source, thinking="on") == expected


def test_variables_do_not_replace_the_messages() -> None:
    assert _render("{{ messages | length }}", messages=[], add_generation_prompt=False) == "0"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0]['content'] + 1 }}",
        "{{ messages[9]['content'] }}",
        "{{ undefined_name.attribute }}",
        "{{ messages.append({}) }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ 1 // 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_a_template_refuses_or_fails_on_names_the_messages(source: str) -> None:
    with pytest.raises(RequestError) as caught:
        _render(source)
    assert caught.value.where == "messages"


def test_the_templates_own_words_reach_the_client() -> None:
    with pytest.raises(RequestError, match="roles must alternate"):
        _render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ 'a' ", "{% unknown_tag %}", "{{ x|no_filter }}"]
)
def test_invalid_templates_are_refused_when_loaded(source: str) -> None:
    with pytest.raises(CoreError, match="chat template"):
        ChatTemplate(source, {})


def _spend(source: str, budget: RenderBudget) -> str:
    return ChatTemplate(source, {}).render(MESSAGES, budget=budget)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(30) %}{% for j in range(30) %}{% endfor %}{% endfor %}",
        "{% for i in range(101) %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}",
        "{% for n in [9] recursive %}{% if n %}{{ loop([n - 1, n - 1]) }}{% endif %}{% endfor %}",
    ],
)
def test_loops_and_macros_are_bounded(source: str) -> None:
    with pytest.raises(RequestError, match="more than 100 loop passes"):
        _spend(source, RenderBudget(iterations=100))


def test_loops_up_to_the_bound_run() -> None:
    source = "{% for i in range(100) %}x{% endfor %}"
    assert _spend(source, RenderBudget(iterations=100)) == "x" * 100


def test_output_is_bounded() -> None:
    source = "{% for i in range(11) %}0123456789{% endfor %}"
    assert len(_spend(source, RenderBudget(output_characters=110))) == 110
    with pytest.raises(RequestError, match="more than 109 characters"):
        _spend(source, RenderBudget(output_characters=109))


def test_time_is_bounded() -> None:
    with pytest.raises(RequestError, match="seconds"):
        _spend("{% for i in range(3) %}{% endfor %}", RenderBudget(seconds=-1.0))


@pytest.mark.parametrize(
    "expression",
    [
        "'a' * 100000000",
        "100000000 * 'a'",
        "[1] * 100000000",
        "2 ** 1000000000",
        "(2 ** 20000000) * (2 ** 20000000)",
        "('a' * 20000000) + ('b' * 20000000)",
    ],
)
def test_operators_make_no_huge_values(expression: str) -> None:
    with pytest.raises(RequestError, match="makes a value larger than"):
        _render("{{ (" + expression + ") | length }}")


def test_ordinary_arithmetic_works() -> None:
    assert _render("{{ 2 ** 10 }} {{ 3 * 4 }} {{ 'ab' * 2 }} {{ [1] + [2] }}") == (
        "1024 12 abab [1, 2]"
    )
