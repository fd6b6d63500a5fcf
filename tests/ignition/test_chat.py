"""Chat templates while preparing: rendering, refusals, and the envelope found by rendering."""

from __future__ import annotations

import pytest

from ignition.preparation import chat
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.errors import CheckpointError

TOKENS = TemplateTokens("<s>", "</s>", None, None, add_bos_token=True)
HELLO = [{"role": "user", "content": "hello"}]


def test_templates_see_tokens_and_messages_as_transformers_gives_them() -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}\n"
        "    {%- if m.role == 'system' %}{% continue %}{% endif %}\n"
        "{{ m.content | tojson }}{{ eos_token }}\n"
        "{% endfor %}{% if pad_token is defined %}pad{% endif %}"
    )
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "é\n"}]
    assert chat.render(template, TOKENS, messages, generation_prompt=False) == '<s>"é\\n"</s>\n'


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no system role') }}",
        "{% for %}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ 1 / 0 }}",
        "{{ messages[3].content.x }}",
    ],
)
def test_templates_that_fail_or_escape_are_refused(template: str) -> None:
    with pytest.raises(CheckpointError, match="chat template can't be rendered"):
        chat.render(template, TOKENS, HELLO, generation_prompt=True)


@pytest.mark.parametrize(
    ("template", "start", "end"),
    [
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
            "<|assistant|>\n",
            "<|end|>",
        ),
        (
            "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
            "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
            "",
            "</s>",
        ),
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>\n<think>\n{% endif %}",
            "<|assistant|>\n",
            "<|end|>",
        ),
        ("{{ messages | length }}", "", ""),
    ],
)
def test_the_envelope_is_found_by_rendering(template: str, start: str, end: str) -> None:
    envelope = chat.envelope(template, TOKENS)
    assert (envelope.assistant_start, envelope.message_end) == (start, end)


def test_without_a_template_the_envelope_is_empty() -> None:
    envelope = chat.envelope(None, TOKENS)
    assert (envelope.assistant_start, envelope.message_end) == ("", "")


def test_today_s_date_doesn_t_change_a_core() -> None:
    template = "{{ strftime_now('%d %b %Y') }}"
    assert chat.render(template, TOKENS, HELLO, generation_prompt=False) == "01 Jan 2025"
