"""Grammars of whole responses: whatever they allow, the response's parser reads as intended."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from llguidance import LLMatcher

from helios.contract.model import FrontendContract
from helios.errors import RequestError
from helios.frontend.grammar.compiler import GrammarCompiler, grammar_tokenizer
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.structure import ChoiceAnswer, JsonAnswer, Structure
from helios.frontend.response.marked_text import MarkedReader
from helios.frontend.response.parameter_types import ToolSchemas
from helios.frontend.response.selection import parser_for, signs_of
from helios.frontend.tokenizer import Tokenizer
from helios.frontend.tools import Calling, Tool, Tools
from tests.frontend.grammar.walks import walk
from tests.frontend.response.reading import Response, Syntax, put_together
from tests.frontend.response.syntaxes import EVERY
from tests.frontend.response.tokens import tokenizer_with

# Elements whose markers are text can be spelled in any text before them.
SYNTAXES = [by for by, _ in EVERY if by.name != "XTML without tokens"]
CALLING = [by for by in SYNTAXES if by.contract.tool_parser.name != "NONE"]
EOS = "<|eos|>"
NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
ANSWER = JsonAnswer(NUMBER, "response_format")
ADD = Tool(
    "add",
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "note": {"type": "string"},
            "unit": {"enum": ["m", "km"]},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "maxItems": 2},
        },
        "required": ["a", "note"],
        "additionalProperties": False,
        "$defs": {
            "row": {
                "type": "object",
                "properties": {"k": {"type": "boolean"}},
                "required": ["k"],
                "additionalProperties": False,
            }
        },
    },
)
TICK = Tool("tick", {"type": "object", "properties": {}, "additionalProperties": False})


class Core:
    """A syntax with a tokenizer of its own."""

    def __init__(self, by: Syntax) -> None:
        self.tokenizer: Tokenizer = tokenizer_with([EOS], by.tokens)
        self.eos = self.tokenizer.encode(EOS)[0]
        self.contract: FrontendContract = by.contract
        self.signs = signs_of(by.contract, self.tokenizer)
        extent = self.tokenizer.id_extent
        self.vocabulary = grammar_tokenizer(self.tokenizer, self.signs, [self.eos], extent)
        tools, reasoning = by.contract.tool_syntax, by.contract.reasoning_syntax
        ends = ["response", "call", "tools", "argument", "think", "message"]
        self.closers = [
            self.tokenizer.encode(text)
            for text in (
                reasoning.close,
                "\n" + tools.argument_close,
                tools.argument_close,
                tools.open,
                tools.close,
                *(f"<|close|>{name}<|sep|>" for name in ends),
            )
            if text.strip()
        ]
        self.compiler = GrammarCompiler(by.contract, self.tokenizer, self.signs, extent)

    def answers(self, constraint: Constraint, opened: str = "", count: int = 12) -> list[Response]:
        """Responses that the constraint allows."""
        tools = constraint.tools.callable
        opaque = constraint.structure is not None
        return [
            self.read(tokens, tools, opened, opaque=opaque)
            for tokens in self.walks(constraint, opened, count)
        ]

    def walks(self, constraint: Constraint, opened: str = "", count: int = 12) -> list[list[int]]:
        """The tokens of responses that the constraint allows."""
        grammar = self.compiler.compile(constraint, opened)
        return [
            walk(self.vocabulary, grammar, random.Random(seed), self.closers)
            for seed in range(count)
        ]

    def read(
        self,
        tokens: Sequence[int],
        tools: Sequence[Tool] = (),
        opened: str = "",
        *,
        opaque: bool = False,
    ) -> Response:
        """The response that tokens are."""
        schemas = {tool.name: tool.parameters for tool in tools}
        parser = parser_for(
            self.contract,
            self.signs,
            ToolSchemas(schemas) if schemas else None,
            opaque=opaque,
        )
        parser.prime(opened)
        reader = MarkedReader(self.tokenizer, self.signs, continues=False)
        deltas = [delta for token in tokens for delta in parser.push(reader.push(token))]
        deltas += parser.push(reader.finish())
        return put_together([*deltas, *parser.finish()])

    def accepts(self, constraint: Constraint, tokens: Sequence[int]) -> bool:
        """Whether the constraint allows a response."""
        grammar = self.compiler.compile(constraint, "")
        matcher = LLMatcher(self.vocabulary, grammar)
        return bool(matcher.validate_tokens([*tokens, self.eos]) == len(tokens) + 1)

    def open_reasoning(self) -> str | None:
        """What a prompt that opens reasoning ends with, None where the syntax has none."""
        sign = self.signs.sign
        match self.contract.reasoning_parser.name:
            case "THINK_TAGS":
                newline = "\n" if self.contract.reasoning_syntax.wrapping_newlines else ""
                return sign(self.contract.reasoning_syntax.open) + newline
            case "XTML_THINK":
                return sign("<|open|>think<|sep|>")
            case "RECIPIENT_HEADERS":
                return sign(" to=self<|message|>")
            case "CHANNELS":
                return sign("<|channel|>analysis<|message|>")
        return None


def _checked(arguments: Any) -> bool:
    return (
        isinstance(arguments["a"], int)
        and isinstance(arguments["note"], str)
        and set(arguments) <= {"a", "note", "unit", "rows"}
        and arguments.get("unit", "m") in ("m", "km")
        and all(isinstance(row["k"], bool) for row in arguments.get("rows", []))
    )


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("by", SYNTAXES, ids=lambda by: by.name)
def test_structured_answer(by: Syntax) -> None:
    core = Core(by)
    for response in core.answers(Constraint(ANSWER, Tools())):
        assert set(json.loads(response.content)) == {"n"}
        assert response.calls == []


@pytest.mark.clause("FRONT-14", "FRONT-6")
@pytest.mark.parametrize("by", SYNTAXES, ids=lambda by: by.name)
def test_structured_answer_after_reasoning(by: Syntax) -> None:
    core = Core(by)
    opened = core.open_reasoning()
    if opened is None:
        pytest.skip("this syntax has no reasoning")
    reasoned = False
    for response in core.answers(Constraint(ANSWER, Tools()), opened):
        assert set(json.loads(response.content)) == {"n"}
        reasoned = reasoned or bool(response.reasoning)
    assert reasoned


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize(
    "by",
    [by for by in SYNTAXES if by.contract.reasoning_parser.name == "THINK_TAGS"],
    ids=lambda by: by.name,
)
def test_an_answer_that_has_begun_goes_on_in_its_form(by: Syntax) -> None:
    core = Core(by)
    tools = Tools((TICK,)) if by in CALLING else Tools()
    for response in core.answers(Constraint(ANSWER, tools), "Sure: "):
        assert response.calls == []
        assert set(json.loads(response.content)) == {"n"}
        assert response.reasoning == ""


def test_a_certain_call_is_read_after_text_that_has_begun() -> None:
    (by,) = [by for by in CALLING if by.name == "qwen"]
    core = Core(by)
    constraint = Constraint(ANSWER, Tools((TICK,), Calling.REQUIRED, parallel=False))
    opaque = constraint.is_opaque(by.contract.tool_syntax.open)
    for tokens in core.walks(constraint, "Sure: ", count=4):
        (call,) = core.read(tokens, (TICK,), "Sure: ", opaque=opaque).calls
        assert (call.name, call.value) == ("tick", {})


@pytest.mark.clause("FRONT-6")
@pytest.mark.parametrize("by", SYNTAXES, ids=lambda by: by.name)
def test_delimiters_inside_a_structured_answer_are_text(by: Syntax) -> None:
    core = Core(by)
    tools, reasoning = by.contract.tool_syntax, by.contract.reasoning_syntax
    quoted = f'{reasoning.close}{tools.open}{{"name": "tick"}}{tools.close}{reasoning.open}'
    structure = JsonAnswer({"const": quoted}, "response_format")
    for response in core.answers(Constraint(structure, Tools((TICK,))), count=8):
        if not response.calls:
            assert json.loads(response.content) == quoted


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("by", CALLING, ids=lambda by: by.name)
@pytest.mark.parametrize("reasons", [False, True])
def test_required_calls(by: Syntax, reasons: bool) -> None:
    core = Core(by)
    opened = core.open_reasoning() if reasons else ""
    if opened is None:
        pytest.skip("this syntax has no reasoning")
    tools = Tools((ADD, TICK), Calling.REQUIRED)
    for response in core.answers(Constraint(None, tools), opened):
        assert response.calls
        for call in response.calls:
            assert call.complete
            assert call.name in ("add", "tick")
            assert _checked(call.value) if call.name == "add" else call.value == {}


@pytest.mark.parametrize("by", CALLING, ids=lambda by: by.name)
def test_named_call(by: Syntax) -> None:
    core = Core(by)
    tools = Tools((ADD, TICK), Calling.REQUIRED, named="add", parallel=False)
    for response in core.answers(Constraint(None, tools), count=6):
        (call,) = response.calls
        assert call.name == "add"
        assert _checked(call.value)


@pytest.mark.clause("FRONT-12", "FRONT-14")
@pytest.mark.parametrize("by", CALLING, ids=lambda by: by.name)
def test_answer_or_calls(by: Syntax) -> None:
    core = Core(by)
    either = Constraint(ANSWER, Tools((TICK,)))
    for response in core.answers(either, count=6):
        if response.calls:
            assert response.content == ""
        else:
            assert set(json.loads(response.content)) == {"n"}
    for said in core.walks(Constraint(ANSWER, Tools()), count=4):
        assert core.accepts(either, said)
    for called in core.walks(Constraint(None, Tools((TICK,), Calling.REQUIRED)), count=8):
        # A response before calls has to be empty beside an answer of a form of its own.
        assert core.accepts(either, called) or by.contract.tool_parser.name == "XTML"
    for wrong in core.walks(Constraint(None, Tools((ADD,), Calling.REQUIRED)), count=2):
        assert not core.accepts(either, wrong)


@pytest.mark.parametrize("by", CALLING, ids=lambda by: by.name)
def test_strict_tools_leave_text_free(by: Syntax) -> None:
    core = Core(by)
    strict = Tool(ADD.name, ADD.parameters, strict=True)
    auto = Constraint(None, Tools((strict,)))
    for response in core.answers(auto, count=6):
        assert all(_checked(call.value) for call in response.calls)
    for tokens in core.walks(Constraint(None, Tools((strict,), Calling.REQUIRED)), count=6):
        # Free text swallows an opening tag that is text, too.
        thinks = core.read(tokens).reasoning and not by.tokens
        assert thinks or core.accepts(auto, tokens)
    for wrong in core.walks(Constraint(None, Tools((TICK,), Calling.REQUIRED)), count=2):
        if core.read(wrong, (TICK,)).content == "":
            assert not core.accepts(auto, wrong)
    for said in core.walks(Constraint(ANSWER, Tools()), count=2):
        # A brace at the beginning is a call's, where calls are bare objects.
        assert core.accepts(auto, said) or by.contract.tool_parser.name == "BARE_JSON"


@pytest.mark.parametrize("by", CALLING, ids=lambda by: by.name)
def test_tools_that_may_not_be_called(by: Syntax) -> None:
    core = Core(by)
    tools = Tools((ADD, TICK), allowed=frozenset(["tick"]))
    for response in core.answers(Constraint(None, tools), count=6):
        assert all(call.name == "tick" for call in response.calls)
    for calling in (Calling.AUTO, Calling.REQUIRED):
        constraint = Constraint(None, replace(tools, calling=calling))
        for tokens in core.walks(Constraint(None, Tools((TICK,), Calling.REQUIRED)), count=4):
            # Free text swallows an opening tag that is text, too.
            thinks = core.read(tokens).reasoning and not by.tokens
            assert thinks or core.accepts(constraint, tokens)
        for wrong in core.walks(Constraint(None, Tools((ADD,), Calling.REQUIRED)), count=4):
            if core.read(wrong, (ADD,)).content == "":
                assert not core.accepts(constraint, wrong)
    for response in core.answers(Constraint(None, replace(tools, calling=Calling.REQUIRED))):
        assert {call.name for call in response.calls} == {"tick"}


TEXTS = Tool(
    "texts",
    {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[a-z]{3}$"},
            "short": {"type": "string", "maxLength": 4},
            "maybe": {"type": ["string", "null"]},
            "flag": {"enum": ["1", "true", "null"], "type": "string"},
            "word": {"$ref": "#/$defs/word"},
        },
        "required": ["code", "short", "maybe", "flag", "word"],
        "additionalProperties": False,
        "$defs": {"word": {"type": "string", "const": "true"}},
    },
)


# Free text may spell tags that aren't tokens, and then it isn't what the grammar took it for.
@pytest.mark.parametrize("by", [by for by in CALLING if by.tokens], ids=lambda by: by.name)
def test_texts_are_not_quoted_twice_and_stay_texts(by: Syntax) -> None:
    core = Core(by)
    tools = Tools((TEXTS,), Calling.REQUIRED, parallel=False)
    for response in core.answers(Constraint(None, tools), count=6):
        (call,) = response.calls
        value = call.value
        assert re.fullmatch("[a-z]{3}", value["code"])
        assert len(value["short"]) <= 4
        assert value["maybe"] is None or isinstance(value["maybe"], str)
        assert value["flag"] in ("1", "true", "null")
        assert value["word"] == "true"


_WRITTEN_ONE_BY_ONE = ("FUNCTION_TAGS", "ARGUMENT_TAGS", "DSML", "XTML", "ATEM")


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"properties": {}, "required": ["a"]}, "required"),
        ({"properties": {}, "minProperties": 1}, "minProperties"),
        ({"properties": {}, "anyOf": [{}]}, "anyOf"),
        ({"properties": {"a": False}, "required": ["a"]}, "properties.a"),
        ({"properties": {"a": {"type": "string", "not": {}}}}, "properties.a"),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, "properties.a"),
        ({"properties": {"a": {"enum": ["1", 1]}}}, "properties.a"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "properties.a"),
    ],
)
@pytest.mark.parametrize(
    "by",
    [by for by in CALLING if by.contract.tool_parser.name in _WRITTEN_ONE_BY_ONE],
    ids=lambda by: by.name,
)
def test_what_arguments_cannot_be_kept_to_is_refused(
    by: Syntax, parameters: dict[str, Any], named: str
) -> None:
    tools = Tools((Tool("t", {"type": "object", **parameters}),), Calling.REQUIRED)
    with pytest.raises(RequestError) as refused:
        Core(by).compiler.compile(Constraint(None, tools), "")
    assert named in str(refused.value.where)


@pytest.mark.parametrize("name", ["a>b", "a\nb", " a", "", 'a"b'])
def test_names_that_cannot_be_written_are_refused(name: str) -> None:
    (by,) = [by for by in CALLING if by.name == "qwen"]
    parameters = {"type": "object", "properties": {name: {"type": "string"}}}
    with pytest.raises(RequestError):
        Core(by).compiler.compile(
            Constraint(None, Tools((Tool("t", parameters),), Calling.REQUIRED)), ""
        )


def test_one_call_without_parallel_calls() -> None:
    for by in CALLING:
        core = Core(by)
        tools = Tools((TICK,), Calling.REQUIRED, parallel=False)
        for response in core.answers(Constraint(None, tools), count=4):
            assert len(response.calls) == 1


@pytest.mark.parametrize(
    ("structure", "named"),
    [
        (JsonAnswer({"not": {}}, "response_format"), "response_format"),
        (JsonAnswer({"type": "object", "propertyNames": {}}, "rf"), "rf"),
        (JsonAnswer({"format": "nonsense", "type": "string"}, "rf"), "rf.format"),
    ],
)
def test_what_is_not_supported_is_refused(structure: Structure, named: str) -> None:
    core = Core(SYNTAXES[0])
    with pytest.raises(RequestError) as refused:
        core.compiler.compile(Constraint(structure, Tools()), "")
    assert refused.value.where == named


def test_a_refusal_advises_nothing_that_a_client_cannot_do() -> None:
    schema = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    with pytest.raises(RequestError, match="oneOf") as refused:
        Core(SYNTAXES[0]).compiler.compile(Constraint(JsonAnswer(schema, "rf"), Tools()), "")
    assert "coerce_one_of" not in str(refused.value)


def test_a_text_may_mention_the_token_that_closes_calls() -> None:
    (by,) = [by for by in CALLING if by.name == "qwen"]
    core = Core(by)
    constraint = Constraint(None, Tools((ADD,), Calling.REQUIRED))
    grammar = core.compiler.compile(constraint, "")
    arguments = "<parameter=a>\n1\n</parameter>\n<parameter=note>\n{}\n</parameter>\n"
    call = f"<tool_call>\n<function=add>\n{arguments}</function>\n</tool_call>"
    for note in ("</tool_call>", "a </tool_call> b</tool_call>\n", "</tool_call> </parameter> c"):
        tokens = core.tokenizer.encode(call.format(note))
        matcher = LLMatcher(core.vocabulary, grammar)
        assert matcher.validate_tokens(tokens) == len(tokens), note
        (made,) = core.read(tokens, (ADD,), "", opaque=False).calls
        assert made.value == {"a": 1, "note": note}
    for note in ("</parameter>\n</tool_call>", "</function>\n</tool_call>", "<tool_call>"):
        tokens = core.tokenizer.encode(call.format(note))
        assert LLMatcher(core.vocabulary, grammar).validate_tokens(tokens) < len(tokens), note


def test_choices() -> None:
    core = Core(SYNTAXES[0])
    constraint = Constraint(ChoiceAnswer(("yes", "no <tool_call>"), "choice"), Tools())
    contents = {response.content for response in core.answers(constraint, count=20)}
    assert contents == {"yes", "no <tool_call>"}
