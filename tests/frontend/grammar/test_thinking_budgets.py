"""Budgets of reasoning: so many tokens at most, then its end, and the rest as it would be."""

from __future__ import annotations

import pytest

from helios.errors import RequestError
from helios.frontend.grammar.constraint import Constraint, ThinkingBudget
from helios.frontend.tools import Tools
from tests.frontend.grammar.test_envelopes import ANSWER, SYNTAXES, TICK, Core
from tests.frontend.response.reading import Syntax
from tests.frontend.response.test_function_tags import SPELLED

REASONING = [by for by in SYNTAXES if Core(by).open_reasoning() is not None and by.tokens]
# Elsewhere reasoning may be several messages, of which a budget leaves one.
IN_ONE_PIECE = [by for by in REASONING if not by.contract.envelope.header_close]


def _tokens(core: Core, text: str) -> int:
    """At least so many: a character that the budget cut was one token or more."""
    return len(core.tokenizer.encode(text.replace("\ufffd", "?")))


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("by", REASONING, ids=lambda by: by.name)
@pytest.mark.parametrize("tokens", [0, 7])
def test_reasoning_ends_within_its_budget(by: Syntax, tokens: int) -> None:
    core = Core(by)
    opened = core.open_reasoning() or ""
    lengths = set()
    constraint = Constraint(ANSWER, Tools(), ThinkingBudget(tokens, "budget"))
    for response in core.answers(constraint, opened, count=30):
        assert response.content.startswith("{")
        lengths.add(_tokens(core, response.reasoning))
    assert max(lengths) <= tokens
    assert tokens == 0 or len(lengths) > 1, "it may end before"


@pytest.mark.parametrize("by", REASONING, ids=lambda by: by.name)
def test_a_response_that_opens_reasoning_itself_has_the_same_budget(by: Syntax) -> None:
    core = Core(by)
    constraint = Constraint(None, Tools((TICK,)), ThinkingBudget(4, "budget"))
    for response in core.answers(constraint, count=20):
        assert _tokens(core, response.reasoning) <= 4


@pytest.mark.parametrize("by", IN_ONE_PIECE, ids=lambda by: by.name)
def test_a_budget_that_isnt_used_up_changes_nothing(by: Syntax) -> None:
    core = Core(by)
    free, bounded = Constraint(ANSWER, Tools()), ThinkingBudget(4000, "budget")
    for tokens in core.walks(free, count=4):
        assert core.accepts(Constraint(ANSWER, Tools(), bounded), tokens)


def test_reasoning_that_text_can_end_has_no_budget() -> None:
    core = Core(SPELLED)
    with pytest.raises(RequestError) as refused:
        core.compiler.compile(Constraint(None, Tools(), ThinkingBudget(5, "budget")), "")
    assert refused.value.where == "budget"
