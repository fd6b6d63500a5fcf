"""Patterns and grammars at random: patterns match what Python's do where both have the same
meaning, and any text as a grammar ends in a refusal or a grammar."""

from __future__ import annotations

import functools
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from helios.errors import RequestError
from helios.frontend.grammar.compiler import GrammarCompiler, parser_limits
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.patterns import UnsupportedPatternError, searched, whole
from helios.frontend.grammar.structure import GbnfAnswer, GrammarAnswer, RegexAnswer, Structure
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.tools import NO_TOOLS
from tests.frontend.grammar.json_schema_outcomes import Judge
from tests.frontend.response.syntaxes import EVERY
from tests.frontend.response.tokens import tokenizer_with

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "-",
        "[ab]",
        "[^a]",
        "[a-c-]",
        r"\d",
        r"\w",
        r"\s",
        r"[\d\-]",
        r"\.",
        r"\x61",
        "/",
        "é",
    ]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,3}?"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)
TEXTS = st.text(alphabet="abc-1. /é\n", max_size=6)
LARK_PIECES = 'start : "a" /[a-z]+/ | ( ) * + ? {2,3} ~ & T t [ ] = %ignore %json {} .. -> . ! _ @'
GBNF_PIECES = 'root ::= "a" [a-z] | ( ) * + ? {2,3} r # \\ " [ ^ ] . { } -'
SOUP = {
    GrammarAnswer: ["\n", " ", *LARK_PIECES.split()],
    GbnfAnswer: ["\n", " ", *GBNF_PIECES.split()],
    RegexAnswer: ["\ud800", "\x00", *"a()[]^$|*{}1,\\duxp-?:<>."],
}


@functools.cache
def _compiler() -> GrammarCompiler:
    tokenizer = tokenizer_with(["<|eos|>"])
    return GrammarCompiler(EVERY[0][0].contract, tokenizer, MarkerSigns(), tokenizer.id_extent)


@functools.cache
def _judge() -> Judge:
    return Judge()


def _admits(grammar: str, text: str) -> bool:
    tokens = tokenizer_with(["<|eos|>"]).encode(text)
    matcher = LLMatcher(_compiler().vocabulary, grammar, limits=parser_limits())
    if matcher.validate_tokens(tokens) < len(tokens):
        return False
    return bool(matcher.consume_tokens(tokens) and matcher.is_accepting())


@settings(deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck))
@given(PATTERNS, st.lists(TEXTS, max_size=4))
def test_patterns_match_what_pythons_do(pattern: str, texts: list[str]) -> None:
    python = re.compile(pattern, re.ASCII)
    try:
        grammar = _compiler().compile(Constraint(RegexAnswer(pattern, "regex"), NO_TOOLS), None)
    except RequestError:
        return  # one that matches nothing
    for text in texts:
        assert _admits(grammar, text) is bool(python.fullmatch(text)), text
        found = _judge().admits({"pattern": pattern}, json.dumps(text, ensure_ascii=False))
        assert found is bool(python.search(text)), text


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(SOUP, key=lambda kind: kind.__name__)))
def test_any_text_as_a_grammar_is_refused_or_a_grammar(
    data: st.DataObject, kind: type[GrammarAnswer | GbnfAnswer | RegexAnswer]
) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(SOUP[kind]), min_size=1, max_size=14)))
    begins = {GrammarAnswer: "start: ", GbnfAnswer: "root ::= ", RegexAnswer: ""}[kind]
    structure: Structure = kind(f"{begins}{text}", "field")
    try:
        _compiler().compile(Constraint(structure, NO_TOOLS), None)
    except RequestError as error:
        where = error.where
    else:
        where = "field"
    assert where == "field"


@pytest.mark.parametrize(
    ("pattern", "shortest"),
    [
        ("", 0),
        ("abc", 3),
        ("a|bc", 1),
        ("(a|bcd){3}e?", 3),
        ("(?:ab){2,}", 4),
        ("a{0,9}", 0),
        ("^.$", 1),
    ],
)
def test_shortest_matches(pattern: str, shortest: int) -> None:
    assert searched(pattern).shortest == shortest


def test_anchors_of_a_whole_match() -> None:
    assert whole("^a|b$").regex == whole("a|b").regex
    for pattern in ("a^b", "(^a)", r"\|^a", "a$b", "(a$)"):
        with pytest.raises(UnsupportedPatternError, match="end of the pattern"):
            whole(pattern)


def test_a_panic_of_the_librarys_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def panics(*_: object, **__: object) -> None:
        raise panic("index out of bounds")

    monkeypatch.setattr("helios.frontend.grammar.compiler.LLMatcher", panics)
    with pytest.raises(RequestError, match="can't follow it"):
        _compiler().compile(Constraint(RegexAnswer("a", "regex"), NO_TOOLS), None)
