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


@pytest.mark.parametrize(
    "expression",
    [
        "'{:>9999999999}'.format(1)",
        "'{:.999999999f}'.format(1.0)",
        "'{:>{}}'.format(1, 999999999)",
        "'{a:>9999999}'.format_map({'a': 1})",
        "'%9999999999d' % 1",
        "'%.999999999f' % 1.0",
        "'%*d' % (999999999, 1)",
        "'%999999999d' | format(1)",
        "'a'.center(9999999999)",
        "'a'.ljust(9999999999)",
        "'a'.rjust(9999999999)",
        "'a'.zfill(9999999999)",
        "('a\n' * 100000) | indent(9999999)",
        "('a' * 100000) | join('b' * 100000)",
        "('b' * 100000).join('a' * 100000)",
        "('a' * 100000).replace('a', 'b' * 100000)",
        "('a' * 100000) | replace('a', 'b' * 100000)",
        "(['a' * 100000] * 1000000) | join",
        "('\t' * 100000).expandtabs(99999)",
        "[[1] * 1000] | tojson(indent=9999999)",
        "[[1] * 1000] | tojson(indent='a' * 9999)",
        "10 ** 9999999",
        "7 * 10 ** 19999",
        "1.5 | round(9999999)",
        "strftime_now('%Y' * 1000)",
        "[('a' * 1000000)] * 10000000",
        "[['a' * 1000000] * 1000] | string",
    ],
)
def test_no_operation_makes_a_large_value_out_of_a_small_one(expression: str) -> None:
    with pytest.raises(RequestError, match="rendering the chat template") as caught:
        _render("{{ (" + expression + ") | string | length }}")
    assert caught.value.where == "messages"


@pytest.mark.parametrize(
    "body",
    [
        "ns.x ~ ns.x",
        "ns.x + ns.x",
        "[ns.x, ns.x] | tojson",
        "'%s%s' % (ns.x, ns.x)",
        "'{}{}'.format(ns.x, ns.x)",
        "[ns.x, ns.x] | join",
        "ns.x | replace('a', 'aa')",
    ],
)
def test_doubling_ends_early(body: str) -> None:
    source = (
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
        "{% set ns.x = " + body + " %}{% endfor %}"
    )
    with pytest.raises(RequestError, match="rendering the chat template"):
        _render(source)


@pytest.mark.parametrize(
    "use",
    [
        "{{ ns.x }}",
        "{% set y = ns.x ~ '' %}",
        "{{ ns.x | tojson }}",
        "{{ ns.x | string | length }}",
        "{{ ns.x == ns.y }}",
        "{{ ns.x in [ns.y] }}",
        "{{ [ns.x, ns.y] | sort | length }}",
        "{{ '%s' % (ns.x,) }}",
        "{{ '{}'.format(ns.x) }}",
        "{{ '{!r}'.format(ns.x) }}",
        "{{ ns.x | trim }}",
        "{{ {ns.t: 1} | length }}",
        "{{ {}[ns.t] }}",
        "{{ {}.get(ns.t) }}",
    ],
)
def test_values_that_hold_themselves_many_times_are_not_walked(use: str) -> None:
    build = (
        "{% set ns = namespace(x=[], y=[], t=()) %}{% for i in range(60) %}{% set ns.x = [ns.x,"
        " ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}"
    )
    with pytest.raises(RequestError, match="goes through more than"):
        _render(build + use)


def test_blocks_and_slices_are_counted_along_the_way() -> None:
    doubled = (
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
        "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}"
    )
    with pytest.raises(RequestError, match="makes a value larger"):
        _render(doubled)
    kept = (
        "{% set big = 'a' * 1000000 %}{% set ns = namespace(x=[]) %}"
        "{% for i in range(1000) %}{% set ns.x = ns.x + [big[1:]] %}{% endfor %}"
    )
    with pytest.raises(RequestError, match="too much text along the way"):
        _render(kept)


@pytest.mark.parametrize(
    "expression",
    [
        "'a'.translate({97: 'b'})",
        "'a'.encode()",
        "(5).to_bytes(9999999999, 'big')",
        "dict.fromkeys([1])",
        "cycler(1)",
        "lipsum(n=9)",
        "[[1]] | sum(start=[])",
        "spend_iteration()",
    ],
)
def test_what_templates_do_not_need_is_not_there(expression: str) -> None:
    with pytest.raises(RequestError, match="fails on them"):
        _render("{{ " + expression + " }}")


@pytest.mark.parametrize(
    "name", ["wordwrap", "center", "slice", "batch", "pprint", "xmlattr", "attr", "random"]
)
def test_filters_that_templates_do_not_need_are_refused_when_loaded(name: str) -> None:
    with pytest.raises(CoreError, match=f"No filter named '{name}'"):
        ChatTemplate("{{ 'a' | " + name + " }}", {})


def test_a_template_cannot_replace_its_budget() -> None:
    source = (
        "{% set helios_render_budget = namespace(spend_iteration=dict) %}"
        "{% for i in range(200) %}{% endfor %}"
    )
    with pytest.raises(RequestError, match="more than 100 loop passes"):
        _spend(source, RenderBudget(iterations=100))


def test_constants_are_not_computed_while_a_template_compiles() -> None:
    ChatTemplate("{% if false %}{{ ['a'] | join | indent(999999999) }}{% endif %}", {})


@pytest.mark.parametrize(
    "source", ["a" * ((1 << 20) + 1), "{% for i in x %}" * 30 + "{% endfor %}" * 30]
)
def test_sources_beyond_the_limits_are_refused(source: str) -> None:
    with pytest.raises(CoreError, match="chat template"):
        ChatTemplate(source, {})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ '{:>4}|{!r}|{0}'.replace('{0}', '').format(1, 'a') }}", "   1|'a'|"),
        ("{{ '{a[0]}'.format(a=['x']) }}", "x"),
        ("{{ '%s-%03d-%.2f' % ('a', 7, 1.5) }} {{ 7 % 4 }}", "a-007-1.50 3"),
        ("{{ '%s' | format('a') }}", "a"),
        ("{{ 'a\nb' | indent(2) }}|{{ 'a' | indent('> ', true) }}", "a\n  b|> a"),
        ("{{ ['a', 'b'] | join(', ') }} {{ ','.join(['a', 'b']) }}", "a, b a,b"),
        ("{{ [{'n': 1}, {'n': 2}] | map(attribute='n') | join('+') }}", "1+2"),
        ("{{ [{'n': 1}, {'n': 2}] | sum(attribute='n') }} {{ 1.25 | round(1) }}", "3 1.2"),
        ("{{ 'aXbX' | replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }}", "a-b- a-bX"),
        ("{{ 'a b  c'.split() }} {{ 'a,b,c'.rsplit(',', maxsplit=1) }}",
         "['a', 'b', 'c'] ['a,b', 'c']"),
        ("{{ 'a' ~ 1 ~ none ~ [2] }} {{ 'abc'[1:] }} {{ 'abc'[::-1] }}", "a1None[2] bc cba"),
        ("{{ 'ß'.upper() }} {{ 'x'.center(3) }}| {{ 'x'.zfill(3) }}", "SS  x | 00x"),
        ("{{ 'a' if x == y else 'b' }}", "a"),
        ("{{ {'a': 1}.items() | list }} {{ {'a': 1}.get('b', 2) }}", "[('a', 1)] 2"),
        ("{{ 'x' | default('y') }}{{ z | default('y') }}{{ [3, 1] | sort | first }}", "xy1"),
        ("{{ 'a'.nothing is defined }} {{ 'a' is in 'abc' }} {{ 'é' | tojson }}",
         'False True "é"'),
    ],
)  # fmt: skip
def test_what_templates_use_renders_as_python_and_jinja_render_it(
    source: str, expected: str
) -> None:
    assert _render(source) == expected
