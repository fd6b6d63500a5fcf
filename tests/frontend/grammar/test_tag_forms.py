"""Structural tags at random: each is refused by its place or a grammar, and whatever an accepted
one allows is an answer as a plain reading of the form has it."""

from __future__ import annotations

import functools
import random
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.errors import RequestError
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.structural_tags import structural_tag
from helios.frontend.tools import NO_TOOLS
from tests.frontend.grammar.test_envelopes import Core
from tests.frontend.grammar.walks import EndlessWalkError, walk
from tests.frontend.response.syntaxes import EVERY

TEXTS = st.sampled_from(["<a>", "<b>", "</a>", "#", "ab", "b", "", "<"])
ANYTHING = st.one_of(st.none(), st.integers(), st.booleans(), TEXTS, st.just({"type": "any_text"}))
LEAVES = st.one_of(
    st.just({"type": "any_text"}),
    st.builds(lambda text: {"type": "any_text", "excludes": [text]}, TEXTS),
    st.builds(lambda text: {"type": "const_string", "value": text}, TEXTS),
    st.just({"type": "json_schema", "json_schema": {"enum": ["x", 1]}}),
    st.just({"type": "regex", "pattern": "[ab<]+"}),
)


def _formats(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    tags = st.fixed_dictionaries({"begin": TEXTS, "content": inner, "end": TEXTS})
    listed = st.lists(tags, min_size=1, max_size=2)
    flags = {"at_least_one": st.booleans(), "stop_after_first": st.booleans()}
    return st.one_of(
        st.builds(lambda tag: {"type": "tag", **tag}, tags),
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["sequence", "or"]),
                "elements": st.lists(inner, min_size=1, max_size=3),
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("triggered_tags"),
                "triggers": st.lists(TEXTS, min_size=1, max_size=2),
                "tags": listed,
                **flags,
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("tags_with_separator"),
                "tags": listed,
                "separator": TEXTS,
                **flags,
            }
        ),
    )


FORMATS = st.recursive(LEAVES, _formats, max_leaves=6)
# What any text, JSON of the schema and the pattern are to a regular expression.
_JSON = r'\s*(?:"x"|1)\s*'


def _pattern(form: dict[str, Any]) -> str:
    """A regular expression that admits at least what a format does."""
    match form["type"]:
        case "any_text":
            return r"(?:.|\n)*"
        case "const_string":
            return re.escape(form["value"])
        case "json_schema":
            return _JSON
        case "regex":
            return "[ab<]+"
        case "tag":
            return _tag(form)
        case "sequence":
            return "".join(f"(?:{_pattern(one)})" for one in form["elements"])
        case "or":
            return "|".join(f"(?:{_pattern(one)})" for one in form["elements"])
    tags = "|".join(f"(?:{_tag(one)})" for one in form["tags"])
    certain, once = form["at_least_one"], form["stop_after_first"]
    if form["type"] == "tags_with_separator":
        more = "" if once else f"(?:{re.escape(form['separator'])}(?:{tags}))*"
        return f"(?:(?:{tags}){more}){'' if certain else '?'}"
    triggers = "|".join(map(re.escape, form["triggers"]))
    free = f"(?:(?!{triggers})(?:.|\\n))*"
    if certain:
        return f"(?:{tags})" if once else f"(?:{tags})(?:{free}(?:{tags}))*{free}"
    return f"{free}(?:{tags})?|{free}" if once else f"{free}(?:(?:{tags}){free})*"


def _tag(tag: dict[str, Any]) -> str:
    return f"{re.escape(tag['begin'])}(?:{_pattern(tag['content'])}){re.escape(tag['end'])}"


@functools.cache
def _core() -> Core:
    return Core(next(by for by, _ in EVERY if by.name == "qwen"))


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(FORMATS, st.integers(0, 3))
def test_an_answer_is_what_its_form_says(form: dict[str, Any], seed: int) -> None:
    core = _core()
    grammar, where = "", "field"
    try:
        asked = structural_tag({"format": form}, "field")
        grammar = core.compiler.compile(Constraint(asked, NO_TOOLS), None)
    except RequestError as refused:
        where = refused.where
    assert where.startswith("field")
    if not grammar:
        return
    wanted = [core.tokenizer.encode(text) for text in ("<a>", "<b>", "</a>", "#", "ab", "b")]
    choose = random.Random(seed)
    try:
        tokens = walk(core.vocabulary, grammar, choose, wanted, patience=12, wanted=wanted)
    except EndlessWalkError:
        # A pattern may swallow what follows it, and then only the limit ends the answer.
        return
    text = b"".join(map(core.tokenizer.token_bytes, tokens)).decode(errors="replace")
    assert re.fullmatch(_pattern(form), text), text


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(
        ANYTHING,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2),
            st.dictionaries(
                st.sampled_from(
                    ["type", "format", "structures", "triggers", "tags", "begin", "content", "end"]
                ),
                st.one_of(inner, st.sampled_from(["tag", "or", "triggered_tags"])),
                max_size=4,
            ),
        ),
        max_leaves=8,
    )
)
def test_any_json_is_refused_by_its_place_or_a_form(value: Any) -> None:
    where = "field"
    try:
        structural_tag(value, "field")
    except RequestError as refused:
        where = refused.where
    assert where.startswith("field")
