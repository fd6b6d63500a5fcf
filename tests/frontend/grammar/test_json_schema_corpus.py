"""The corpus of JSON schemas: no keyword is wrong, and the page says what there is."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.frontend.grammar.json_schema_cases import Keyword
from tests.frontend.grammar.json_schema_corpus import KEYWORDS
from tests.frontend.grammar.json_schema_outcomes import Judge, outcomes, table

PAGE = Path(__file__).parents[3] / "docs" / "structured-output.md"


@functools.cache
def _judge() -> Judge:
    return Judge()


@pytest.mark.parametrize("keyword", KEYWORDS, ids=lambda keyword: keyword.name)
def test_no_keyword_is_wrong(keyword: Keyword) -> None:
    assert _judge().found(keyword).problems == []


def test_every_keyword_is_there_once() -> None:
    names = [keyword.name for keyword in KEYWORDS]
    assert len(set(names)) == len(names)
    assert all(keyword.cases for keyword in KEYWORDS)


def test_the_page_has_the_table() -> None:
    assert table(outcomes()) in PAGE.read_text()
