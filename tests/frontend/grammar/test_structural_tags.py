"""Structural tags: free text up to a trigger, then its structure, then free text again."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest
from llguidance import LLMatcher

from helios.errors import RequestError
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.structural_tags import StructuralTag, structural_tag
from helios.frontend.tools import NO_TOOLS, Tools
from tests.frontend.grammar.test_envelopes import ADD, SYNTAXES, TICK, Core, _checked
from tests.frontend.grammar.walks import walk
from tests.frontend.response.syntaxes import EVERY

WHERE: Final = "response_format"
SCHEMA: Final = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
OTHER: Final = {"enum": ["red", "green"]}
ASKED: Final[dict[str, Any]] = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<f=one>", "schema": SCHEMA, "end": "</f>"},
        {"begin": "<f=two>", "schema": OTHER, "end": "</f>"},
        {"begin": "[note]", "schema": {"type": "string", "maxLength": 3}, "end": ""},
    ],
    "triggers": ["<f=", "[note"],
}


@pytest.fixture(scope="module")
def plain() -> Core:
    """A core whose vocabulary has no tags."""
    return Core(next(by for by, _ in EVERY if not by.tokens and by.name != "XTML without tokens"))


def tag_of(said: Mapping[str, Any] | str) -> StructuralTag:
    return structural_tag(said, WHERE)


def of_format(kind: str, **said: Any) -> StructuralTag:
    return tag_of({"type": "structural_tag", "format": {"type": kind, **said}})


class Judge:
    """Which texts a structural tag allows as a bare output."""

    def __init__(self, core: Core, form: StructuralTag) -> None:
        self._core = core
        self._grammar = core.compiler.compile(Constraint(form, NO_TOOLS), None)

    def admits(self, text: str) -> bool:
        """Whether text is a whole answer."""
        tokens = [*self._core.tokenizer.encode(text), self._core.eos]
        matcher = LLMatcher(self._core.vocabulary, self._grammar)
        assert not matcher.is_error(), matcher.get_error()
        return bool(matcher.validate_tokens(tokens) == len(tokens))


ONE: Final = '<f=one>{"n": 1}</f>'
TWO: Final = '<f=two>"red"</f>'
TAG: Final = {"begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
FIXED: Final = {"type": "const_string", "value": "hi"}
NUMBER: Final = {"begin": "#", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": ";"}


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("", True),
        ("just text", True),
        ("almost <f", True),
        ("almost [not]e", True),
        (ONE, True),
        (f"so {ONE} and {TWO}{ONE} end <", True),
        ('[note]"abc"', True),
        ('x[note]"abc"[note]""y', True),
        ('<f=one>{"n": "1"}</f>', False),
        ('<f=two>{"n": 1}</f>', False),
        ("<f=three>", False),
        ("it says <f=", False),
        ('<f=one>{"n": 1}', False),
        (f"{ONE}<f=x", False),
        ("[notes", False),
        ('[note]"abcd"', False),
    ],
)
@pytest.mark.parametrize("written", ["structures", "text", "format"])
def test_structures(plain: Core, written: str, text: str, admitted: bool) -> None:
    asked: Any = ASKED
    if written == "text":
        asked = json.dumps(ASKED)
    elif written == "format":
        tags = [
            {
                "begin": one["begin"],
                "content": {"type": "json_schema", "json_schema": one["schema"]},
                "end": one["end"],
            }
            for one in ASKED["structures"]
        ]
        asked = {"format": {"type": "triggered_tags", "triggers": ASKED["triggers"], "tags": tags}}
    assert Judge(plain, tag_of(asked)).admits(text) is admitted


@pytest.mark.parametrize(
    ("form", "admitted", "refused"),
    [
        (("const_string", {"value": 'a"\n😀'}), ['a"\n😀'], ["", "a", 'a"\n😀b']),
        (("json_schema", {"json_schema": SCHEMA}), ['{"n": 1}'], ["", '{"n": 1} x']),
        (("regex", {"pattern": "[a-c]+"}), ["a", "abc"], ["", "d"]),
        (("grammar", {"grammar": 'root ::= "a" | "b" root'}), ["a", "bba"], ["b", ""]),
        (("grammar", {"grammar": 'start: "a"+'}), ["aaa"], ["", "ab"]),
        (("any_text", {}), ["", "<anything>\n"], []),
        (("any_text", {"excludes": ["no", "#"]}), ["", "on n"], ["no", "a#"]),
        (("tag", TAG), ["<a></a>", "<a><a</a>"], ["", "<a>x", "<a></a></a>", "<a></a>x"]),
        (
            ("tag", TAG | {"end": ["</a>", "!"]}),
            ["<a>x</a>", "<a>!"],
            ["<a>", "<a>!!", "<a>!</a>"],
        ),
        (
            ("tag", TAG | {"content": {"type": "any_text", "excludes": ["<"]}}),
            ["<a>b</a>"],
            ["<a><</a>"],
        ),
        (("sequence", {"elements": [FIXED, FIXED]}), ["hihi"], ["hi", "hihihi"]),
        (
            ("or", {"elements": [FIXED, TAG | {"type": "tag"}]}),
            ["hi", "<a>b</a>"],
            ["", "hi<a></a>"],
        ),
        (
            ("sequence", {"elements": [{"type": "any_text"}, TAG | {"type": "tag"}, FIXED]}),
            ["<a></a>hi", "hi<a>x</a>hi"],
            ["", "hi", "<a></a>", "<a></a>hi<a></a>hi"],
        ),
        (
            ("sequence", {"elements": [{"type": "regex", "pattern": "\\w+"}, FIXED]}),
            ["xhi", "hhi"],
            ["hi", "x", "xhix"],
        ),
        (
            ("tags_with_separator", {"tags": [NUMBER, TAG], "separator": ","}),
            ["", "#1;", "#1;,#22;,<a></a>"],
            ["#1;,", "#1;#2;", "x", "#;"],
        ),
        (
            ("tags_with_separator", {"tags": [NUMBER], "separator": "", "at_least_one": True}),
            ["#1;", "#1;#2;"],
            [""],
        ),
        (
            (
                "tags_with_separator",
                {"tags": [NUMBER], "separator": ",", "stop_after_first": True},
            ),
            ["", "#1;"],
            ["#1;,#2;"],
        ),
        (
            ("triggered_tags", {"triggers": ["#"], "tags": [NUMBER], "at_least_one": True}),
            ["#1;", "#1; and #2;."],
            ["", "x#1;"],
        ),
        (
            ("triggered_tags", {"triggers": ["#"], "tags": [NUMBER], "stop_after_first": True}),
            ["", "text", "x#1;"],
            ["#1;x", "#1;#2;"],
        ),
        (
            (
                "triggered_tags",
                {
                    "triggers": ["#"],
                    "tags": [NUMBER],
                    "at_least_one": True,
                    "stop_after_first": True,
                },
            ),
            ["#1;"],
            ["", "x#1;", "#1;x"],
        ),
        (
            ("triggered_tags", {"triggers": ["#"], "tags": [NUMBER], "excludes": ["bad"]}),
            ["", "ba#1;d"],
            ["bad", "#1;bad"],
        ),
        (
            (
                "tag",
                {
                    "begin": "<o>",
                    "content": {"type": "triggered_tags", "triggers": ["#"], "tags": [NUMBER]},
                    "end": "</o>",
                },
            ),
            ["<o></o>", "<o>x#1;y#2;</o>"],
            ["<o>#</o>", "<o>x", "<o></o>x", "<o>#1;</o></o>"],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_formats(
    plain: Core, form: tuple[str, dict[str, Any]], admitted: list[str], refused: list[str]
) -> None:
    judge = Judge(plain, of_format(form[0], **form[1]))
    for text in admitted:
        assert judge.admits(text), text
    for text in refused:
        assert not judge.admits(text), text


def _structures(content: str) -> list[tuple[str, Any]]:
    """The structures in an answer, each by its name. Raises where one isn't as it should be."""
    found, at = [], 0
    while (begins := re.compile(r"<f=|\[note").search(content, at)) is not None:
        at = begins.start()
        for one in ASKED["structures"]:
            if content.startswith(one["begin"], at):
                value, at = json.JSONDecoder().raw_decode(content, at + len(one["begin"]))
                assert content.startswith(one["end"], at)
                at += len(one["end"])
                found.append((one["begin"], value))
                break
        else:
            raise AssertionError(content[at:])
    return found


def _walks(core: Core, grammar: str, wanted: list[str]) -> list[list[int]]:
    """Walks on which some texts come often."""
    encoded = [core.tokenizer.encode(text) for text in wanted]
    return [
        walk(core.vocabulary, grammar, random.Random(seed), core.closers, wanted=encoded)
        for seed in range(12)
    ]


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("by", SYNTAXES, ids=lambda by: by.name)
@pytest.mark.parametrize("reasons", [False, True])
def test_walks(by: Any, reasons: bool) -> None:
    core = Core(by)
    opened = core.open_reasoning() if reasons else ""
    if opened is None:
        pytest.skip("this syntax has no reasoning")
    grammar = core.compiler.compile(Constraint(tag_of(ASKED), NO_TOOLS), opened)
    seen = 0
    for tokens in _walks(core, grammar, ["<f=one>", "<f=two>", "[note]"]):
        response = core.read(tokens, opened=opened, opaque=True)
        for begin, value in _structures(response.content):
            seen += 1
            match begin:
                case "<f=one>":
                    assert set(value) == {"n"}
                case "<f=two>":
                    assert value in ("red", "green")
                case _:
                    assert len(value) <= 3
    assert seen


CALL_TAGS: Final[dict[str, dict[str, Any]]] = {
    "tagged JSON": {
        "begin": '<tool_call>\n{"name": "add", "arguments": ',
        "content": {"type": "json_schema", "json_schema": ADD.parameters},
        "end": "}\n</tool_call>",
    },
    "qwen": {
        "begin": "<tool_call>\n",
        "content": {"type": "const_string", "value": "<function=tick>\n</function>"},
        "end": "\n</tool_call>",
    },
}


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("name", CALL_TAGS)
@pytest.mark.parametrize("trigger", ["<tool_call>", "<tool", "<tool_call>\n"])
def test_a_tag_that_writes_calls_makes_calls(name: str, trigger: str) -> None:
    """A trigger that is a token, or reaches into one, is met as the token; what spells it is
    text."""
    core = Core(next(by for by, _ in EVERY if by.name == name))
    (marker,) = core.tokenizer.encode("<tool_call>")
    form = of_format("triggered_tags", triggers=[trigger], tags=[CALL_TAGS[name]])
    constraint = Constraint(form, Tools((ADD, TICK)))
    assert not constraint.is_opaque(core.contract.tool_syntax.open)
    called = 0
    for tokens in _walks(core, core.compiler.compile(constraint, ""), ["<tool_call>"]):
        response = core.read(tokens, (ADD, TICK))
        called += len(response.calls)
        for call in response.calls:
            assert call.complete
            assert _checked(call.value) if call.name == "add" else call.value == {}
    assert called
    assert core.accepts(
        constraint, [token for part in "<tool_call>" for token in core.tokenizer.encode(part)]
    )
    assert not core.accepts(constraint, [marker])


def _format(**said: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": said}


def _legacy(*structures: Mapping[str, Any], triggers: Any = ("<",)) -> dict[str, Any]:
    listed = list(triggers) if isinstance(triggers, tuple) else triggers
    return {"structures": list(structures), "triggers": listed}


STRUCTURE: Final = {"begin": "<a>", "schema": SCHEMA, "end": "</a>"}
ANY: Final = {"type": "any_text"}


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("{", ""),
        ([], ""),
        ({"type": "json"}, ".type"),
        ({}, ".format"),
        ({"format": {"type": "any_text"}, "more": 1}, ".more"),
        (_legacy(STRUCTURE) | {"format": ANY}, ".format"),
        (_format(), ".format.type"),
        (_format(type="qwen_xml_parameter", json_schema={}), ".format.type"),
        (_format(type="token", token=5), ".format.type"),
        (_format(type="json_schema", json_schema={}, style="qwen_xml"), ".format.style"),
        (_format(type="json_schema"), ".format.json_schema"),
        (_format(type="json_schema", json_schema={"not": {}}), ".format.json_schema"),
        (_format(type="const_string", value=""), ".format.value"),
        (_format(type="const_string", value="\x00"), ".format.value"),
        (_format(type="const_string", value="a" * 9000), ".format.value"),
        (_format(type="regex", pattern="(?=a)"), ".format.pattern"),
        (_format(type="regex", pattern="a", excludes=["b"]), ".format.excludes"),
        (_format(type="grammar", grammar="start: <tool>"), ".format.grammar"),
        (_format(type="grammar", grammar="root ::= nowhere"), ".format.grammar"),
        (_format(type="any_text", excludes=["a", ""]), ".format.excludes[1]"),
        (_format(type="any_text", excludes=["a"] * 33), ".format.excludes"),
        (_format(type="sequence", elements=[]), ".format.elements"),
        (_format(type="sequence", elements=[FIXED, 5]), ".format.elements[1]"),
        (_format(type="sequence", elements=[ANY, ANY]), ".format.elements[0]"),
        (_format(type="or", elements=[FIXED, {"type": "x"}]), ".format.elements[1].type"),
        (_format(**TAG, type="tag", name="x"), ".format.name"),
        (_format(type="tag", begin=5, content=ANY, end=""), ".format.begin"),
        (_format(type="tag", begin="", content=ANY, end=["", "a"]), ".format.end[0]"),
        (_format(type="tag", begin="", end=""), ".format.content"),
        (
            _format(type="tags_with_separator", tags=[TAG | {"end": ""}], separator=""),
            ".format.tags[0]",
        ),
        (_format(type="tags_with_separator", tags=[NUMBER]), ".format.separator"),
        (
            _format(type="triggered_tags", tags=[NUMBER], triggers=["#"], at_least_one=1),
            ".format.at_least_one",
        ),
        (
            _format(type="triggered_tags", tags=[NUMBER | {"type": "or"}], triggers=["#"]),
            ".format.tags[0].type",
        ),
        (_legacy(triggers=("<",)), ".structures"),
        (_legacy(STRUCTURE, triggers=()), ".triggers"),
        (_legacy(STRUCTURE, triggers="<"), ".triggers"),
        (_legacy(STRUCTURE, triggers=("",)), ".triggers[0]"),
        (_legacy(STRUCTURE, triggers=("<", "<a")), ".triggers[1]"),
        (_legacy(STRUCTURE, triggers=("<", "#")), ".triggers[1]"),
        (_legacy(STRUCTURE, STRUCTURE | {"begin": "b"}), ".structures[1].begin"),
        (_legacy(STRUCTURE | {"content": ANY}), ".structures[0].content"),
        (_legacy({"begin": "<", "end": ""}), ".structures[0].schema"),
        (_legacy(STRUCTURE, STRUCTURE | {"schema": {"not": {}}}), ".structures[1].schema"),
        (
            _legacy(
                *({"begin": f"<{i:03}", "schema": SCHEMA, "end": ""} for i in range(33)),
                triggers=tuple(f"<{i:03}" for i in range(33)),
            ),
            ".triggers",
        ),
    ],
)
def test_what_cannot_be_kept_to_is_refused_by_its_place(plain: Core, said: Any, place: str) -> None:
    with pytest.raises(RequestError) as refused:
        plain.compiler.compile(Constraint(tag_of(said), NO_TOOLS), "")
    assert refused.value.where == f"{WHERE}{place}", refused.value


def test_nesting_and_number_are_bounded() -> None:
    deep: dict[str, Any] = ANY
    for _ in range(64):
        deep = {"type": "or", "elements": [deep]}
    with pytest.raises(RequestError, match="too many formats"):
        tag_of({"format": deep})
    with pytest.raises(RequestError, match="too many formats"):
        of_format("or", elements=[FIXED] * 1000)


@pytest.mark.parametrize("name", ["channels", "recipients"])
def test_tokens_that_stand_around_answers_are_not_in_them(name: str) -> None:
    by = next(
        by for by in SYNTAXES if by.contract.reasoning_parser.name.lower().startswith(name[:7])
    )
    core = Core(by)
    end = by.contract.envelope.body_closes[0]
    form = of_format("tag", begin="a", content=ANY, end=end)
    with pytest.raises(RequestError) as refused:
        core.compiler.compile(Constraint(form, NO_TOOLS), "")
    assert refused.value.where == f"{WHERE}.format.end"
