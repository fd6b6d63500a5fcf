"""Chat templates and their tokens as transformers renders and encodes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from helios.frontend.markers import MarkerGuard
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.vocabularies import CHAT_TEMPLATE, byte_level, piece_level

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": " Be kind.\n"}, {"role": "user", "content": "é 🦜"}],
    "turns": [
        {"role": "user", "content": "a < b & 'c'"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"},
        {"role": "user", "content": "\tagain\n\n"},
    ],
}
TEMPLATES = {
    "chatml": CHAT_TEMPLATE,
    "blocks": """{{ bos_token }}
    {%- for message in messages %}
        {% if message.role == 'user' %}
    [U] {{ message.content | trim }}
        {% elif loop.last or message['role'] == 'system' %}
    [S] {{ message.content }}
        {% else %}
            {%- set parts = message.content.split('</think>') %}
    [A] {{ parts[-1].lstrip('\n') }}{{ eos_token }}
        {% endif %}
    {% endfor %}
    {% if add_generation_prompt %}[A]{% endif %}""",
    "namespace": "{% set ns = namespace(last=-1, text='') %}"
    "{% for m in messages[::-1] %}{% if m.role == 'user' and ns.last < 0 %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% set ns.text = ns.text + m.role[0] %}{% endfor %}"
    "{{ ns.last }} {{ ns.text }} {{ messages | length }}",
    "json": "{% for m in messages %}{{ m | tojson }}|{{ m | tojson(indent=4) }}|"
    "{{ m.content | tojson(ensure_ascii=true) }}{% endfor %}",
    "macros": "{% macro turn(m, open='<', close='>') -%}\n{{ open }}{{ m.role | upper }}{{ close }}"
    "{{ m.content }}\n{%- endmacro %}{% for m in messages %}{{ turn(m) }}{{ turn(m, open='[') }}"
    "{% endfor %}",
    "loops": "{% for m in messages %}{% if loop.first and m.role != 'system' %}{% continue %}"
    "{% endif %}{% for c in m.content %}{% if c == 'k' %}{% break %}{% endif %}{{ c }}{% endfor %}"
    "{% generation %}[{{ m.role }}]{% endgeneration %}{% endfor %}",
    "tests": "{{ messages[0].content is string }} {{ tools is none }} {{ documents is defined }}"
    " {{ nothing is defined }} {{ dict(a=1) }} {{ range(3) | list }}"
    " {{ messages[0] | items | list }}"
    " {{ (messages | selectattr('role', 'equalto', 'user') | list | length) }} {{ nothing }}",
}


@pytest.mark.parametrize("conversation", list(CONVERSATIONS))
@pytest.mark.parametrize("template", list(TEMPLATES))
def test_templates_render_alike(template: str, conversation: str) -> None:
    messages = CONVERSATIONS[conversation]
    rendered = render_jinja_template(
        [messages], chat_template=TEMPLATES[template], add_generation_prompt=True, **TOKENS
    )
    expected = rendered[0][0] if isinstance(rendered, tuple) else rendered[0]
    assert ChatTemplate(TEMPLATES[template], TOKENS).render(messages) == expected


@pytest.mark.parametrize("data", [byte_level(), piece_level()], ids=["byte-level", "pieces"])
@pytest.mark.parametrize("conversation", list(CONVERSATIONS))
def test_prompts_have_the_same_tokens(data: bytes, conversation: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    reference = PreTrainedTokenizerFast(tokenizer_file=str(path), chat_template=CHAT_TEMPLATE)
    messages = CONVERSATIONS[conversation]
    expected = reference.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    rendered = ChatTemplate(CHAT_TEMPLATE, {}).written(messages)
    assert MarkerGuard(Tokenizer(data)).encode(rendered, where="m") == list(expected)
