"""Which prefix boundaries a core declares, by what its template renders alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.contract.model import PrefixBoundaryRule
from helios.core import open_core
from ignition.preparation.chat_syntax import choose
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.prefix_rules import boundary_roles
from ignition.preparation.prepare import Options, prepare
from ignition.preparation.templates import FamilyTemplate, read_template
from tests.checkpoints import CHAT_TEMPLATE, write_huggingface
from tests.frontend.chat_styles.styles import STYLES
from tests.ignition.test_prepare import KEY, Quiet

TOKENS = TemplateTokens("<s>", "</s>", None, None, add_bos_token=False)
EVERY = {
    **{name: style.template for name, style in STYLES.items()},
    **{which.value.name: read_template(which) for which in FamilyTemplate},
}
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls }}{% endfor %}"


@pytest.mark.clause("FRONT-8")
@pytest.mark.parametrize("name", EVERY)
def test_templates_that_write_one_message_after_the_other_have_both(name: str) -> None:
    assert choose(EVERY[name], TOKENS).boundary_roles == ("user", "tool")


@pytest.mark.clause("FRONT-8")
@pytest.mark.parametrize(
    ("template", "roles"),
    [
        (PLAIN, ("user", "tool")),
        ("{{ messages[-1].content }}" + PLAIN, ()),
        ("{{ messages[-1].role }}" + PLAIN, ("user", "tool")),
        ("{% if messages[-1].role == 'user' %}{{ messages[-1].content }}{% endif %}" + PLAIN,
         ("tool",)),
        (PLAIN + "{% if messages[-1].role == 'tool' %}{{ raise_exception('no') }}{% endif %}",
         ("user",)),
        (PLAIN.replace("{{ m.tool_calls }}", ""), ("user",)),
    ],
)  # fmt: skip
def test_a_role_is_declared_where_what_is_before_stays(
    template: str, roles: tuple[str, ...]
) -> None:
    assert boundary_roles(template, TOKENS) == roles


@pytest.mark.clause("FRONT-8")
def test_a_core_declares_them(tmp_path: Path) -> None:
    options = Options(
        namespace="tests", served_id="tiny", max_active=1, prefill=(64,), decode=(1,),
        max_context=96,
    )  # fmt: skip
    folder = write_huggingface(tmp_path / "checkpoint", "llama")
    prepare(folder, tmp_path / "core", options, KEY, Quiet())
    declared = open_core(tmp_path / "core", accept="tests").contract.model.frontend
    assert choose(CHAT_TEMPLATE, TOKENS).boundary_roles == ("user", "tool")
    assert declared.prefix_boundaries == (
        PrefixBoundaryRule(("user", "tool"), needs_generation_prompt=False),
    )
    assert choose(None, TOKENS).boundary_roles == ()
