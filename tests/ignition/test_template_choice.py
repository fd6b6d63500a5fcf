"""Which template a core carries: a caller's, the checkpoint's, a family's with its words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helios.core import ResourceKind, open_core
from helios.errors import ContractError
from helios.frontend.template import ChatTemplate
from ignition.preparation.chat_syntax import AUTO, NONE
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.comparison import Verdict
from ignition.preparation.prepare import Options, prepare
from ignition.preparation.rebuild import rebuild
from ignition.preparation.template_choice import (
    ChosenTemplate,
    TemplateOptions,
    check,
    choose,
    read_options,
)
from ignition.preparation.templates import (
    BY_NAME,
    FamilyTemplate,
    read_template,
    with_words,
    words_of,
)
from tests.checkpoints import CHAT_TEMPLATE, write_huggingface
from tests.ignition.test_prepare import KEY, Quiet
from tests.preparation.templateless import write_templateless

OPTIONS = Options(
    namespace="tests", served_id="tiny", max_active=2, prefill=(8, 64), decode=(1, 2),
    max_context=96,
)  # fmt: skip
EVERY = list(FamilyTemplate)
NAMES = [which.value.name for which in EVERY]


def chosen(
    folder: Path,
    options: TemplateOptions | None = None,
    tools: str = AUTO,
    reasoning: str = AUTO,
) -> ChosenTemplate:
    return choose(open_checkpoint(folder), options or TemplateOptions(), tools, reasoning)


@pytest.mark.parametrize("which", EVERY, ids=NAMES)
def test_markers_tell_the_family_where_there_is_no_template(
    tmp_path: Path, which: FamilyTemplate
) -> None:
    family = which.value
    found = chosen(write_templateless(tmp_path, which))
    assert (found.text, found.family) == (read_template(which), family.name)
    assert (found.tools, found.reasoning) == (family.tools, family.reasoning)
    assert found.note is not None
    for said in (family.name, family.tools, family.reasoning, *family.words):
        assert said in found.note
    off = chosen(tmp_path, TemplateOptions(family=NONE))
    assert (off.text, off.note, off.tools) == (None, None, AUTO)


def test_without_all_markers_there_is_no_family(tmp_path: Path) -> None:
    assert chosen(write_templateless(tmp_path / "none")).text is None
    some = write_templateless(tmp_path / "some", FamilyTemplate.XTML)
    path = some / "tokenizer.json"
    path.write_text(path.read_text().replace("<|sep|>", "<|gap|>"))
    assert chosen(some) == ChosenTemplate(None, NONE, AUTO, AUTO)


def test_a_template_of_the_checkpoint_is_used(tmp_path: Path) -> None:
    folder = write_templateless(tmp_path, FamilyTemplate.DSML)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert chosen(folder) == ChosenTemplate("{{ messages }}", NONE, AUTO, AUTO)
    named = chosen(folder, TemplateOptions(family="dsml"))
    assert named.text == read_template(FamilyTemplate.DSML), "who asks for a family gets it"
    assert named.note is not None
    assert "as asked for" in named.note


@pytest.mark.parametrize("folder", ["plain", "family"])
def test_a_callers_own_comes_before_all(tmp_path: Path, folder: str) -> None:
    checkpoint = tmp_path / folder
    if folder == "plain":
        write_huggingface(checkpoint, "llama")
    else:
        write_templateless(checkpoint, FamilyTemplate.XTML)
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages }}{# own #}")
    options = read_options(str(own), None)
    assert chosen(checkpoint, options) == ChosenTemplate(
        "{{ messages }}{# own #}", NONE, AUTO, AUTO
    )


def test_a_syntax_that_the_family_does_not_write_is_not_its(tmp_path: Path) -> None:
    folder = write_templateless(tmp_path, FamilyTemplate.DSML)
    assert chosen(folder, tools="dsml_function_calls").text is None
    assert chosen(folder, tools=NONE).tools == NONE
    assert chosen(folder, reasoning="think_tags").family == "dsml"
    with pytest.raises(ContractError, match="dsml_tool_calls") as refused:
        chosen(folder, TemplateOptions(family="dsml"), tools="dsml_calls")
    assert refused.value.where == "--tools, --reasoning"


# ---------------------------------------------------------------- words


@pytest.mark.parametrize("which", EVERY, ids=NAMES)
def test_every_word_of_a_template_can_be_replaced(which: FamilyTemplate) -> None:
    """Whatever stands in it: all that a template does with its words is to write them."""
    hostile = "a 'b' \"c\" {{ d }} {% e %} {# f #} \\ \n\t\U0001f600 \u00e9"
    replaced = {
        name: dict.fromkeys(own, hostile) if isinstance(own, dict) else hostile
        for name, own in words_of(which).items()
    }
    ChatTemplate(with_words(which, replaced), {})
    assert with_words(which, {}) == read_template(which)
    assert with_words(which, words_of(which)) == read_template(which)


def test_words_are_written_as_they_are(tmp_path: Path) -> None:
    folder = write_templateless(tmp_path / "checkpoint", FamilyTemplate.DSML)
    words = tmp_path / "words.json"
    said = "Tools of {{ mine }}, 'quoted' \\n\n"
    words.write_text(json.dumps({"heading": said, "preambles": {"max": "Harder! "}}))
    found = chosen(folder, read_options(AUTO, words))
    assert found.text is not None
    template = ChatTemplate(found.text, {"bos_token": "<b>", "eos_token": "<e>"})
    ask = [{"role": "user", "content": "q"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert said in template.render(ask, tools=tools)
    variables = {"thinking": True, "reasoning_effort": "max"}
    assert template.render(ask, variables=variables).startswith("<b>Harder! ")
    variables["reasoning_effort"] = "high"
    assert "Reasoning effort: high" in template.render(ask, variables=variables)
    assert found.note is not None
    assert found.note.count("heading") == 1
    assert "own schemas_heading (" in found.note, "only what is still Ignition's is named"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"heading": 3}, "no text"),
        ({"headings": "x"}, "no word 'headings'"),
        ({"preambles": "x"}, "no object of texts"),
        ({"preambles": {"max": 1}}, "no object of texts"),
        ({"preambles": {"most": "x"}}, "no object of texts"),
        (["x"], "no object"),
    ],
)
def test_words_that_a_template_does_not_have_are_refused(words: object, said: str) -> None:
    options = TemplateOptions(family="dsml", words=json.dumps(words))
    with pytest.raises(ContractError, match=said) as refused:
        check(options)
    assert refused.value.where == "--template-words"


def test_words_without_a_family_are_refused(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path, "llama")
    options = TemplateOptions(words='{"heading": "x"}')
    check(options)
    with pytest.raises(ContractError, match="nowhere"):
        chosen(folder, options)
    for without in (TemplateOptions(family=NONE, words=options.words), TemplateOptions("x", NONE)):
        if without.words:
            with pytest.raises(ContractError, match="nowhere"):
                check(without)
        else:
            check(without)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no file") as refused:
        read_options("families", None)
    assert refused.value.remedy is not None
    assert all(name in refused.value.remedy for name in BY_NAME)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for given in ((str(binary), None), (AUTO, binary)):
        with pytest.raises(ContractError, match="UTF-8"):
            read_options(*given)
    binary.write_text("{")
    with pytest.raises(ContractError, match="no JSON"):
        read_options(AUTO, binary)
    binary.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(ContractError, match="larger"):
        read_options(str(binary), None)


# ---------------------------------------------------------------- cores


@pytest.mark.parametrize("kind", ["family", "words", "own"])
def test_a_rebuild_takes_the_same_template(tmp_path: Path, kind: str) -> None:
    checkpoint = write_templateless(tmp_path / "checkpoint", FamilyTemplate.RECIPIENT_HEADERS)
    template = {
        "family": TemplateOptions(),
        "words": TemplateOptions(words='{"identity": "I am \\u00e9."}'),
        "own": TemplateOptions(CHAT_TEMPLATE, NONE),
    }[kind]
    options = Options(**{**vars(OPTIONS), "template": template})
    progress = Quiet()
    prepare(checkpoint, tmp_path / "core", options, KEY, progress)
    assert any("recipient_headers" in note for note in progress.notes) == (kind != "own")
    core = open_core(tmp_path / "core", accept="tests")
    text = core.read_resource(core.deployment.template_resource, ResourceKind.CHAT_TEMPLATE)
    recorded = dict(core.deployment.rebuild.options)
    if kind == "own":
        assert text.decode().endswith(CHAT_TEMPLATE)
        assert recorded["template_text"] == CHAT_TEMPLATE
        assert "template_family" not in recorded
    else:
        assert (b"I am \xc3\xa9." in text) == (kind == "words")
        assert recorded["template_family"] == "recipient_headers"
        assert (recorded["tools"], recorded["reasoning"]) == ("atem", "recipient_headers")
    assert rebuild(tmp_path / "core", checkpoint, Quiet()).verdict is Verdict.SAME
