"""What a contract's graphs say of scoring prompts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.contract.enums import Operation, ValueSource
from helios.contract.model import GraphContract
from helios.runtime.scoring_rules import ScoringRules, scoring_fault, scoring_rules
from tests.model_parts import capture_tiny


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> tuple[GraphContract, ...]:
    parts = capture_tiny(tmp_path_factory.mktemp("checkpoints"), "llama")
    return tuple(parts.contract.model.graphs)


def test_graphs_that_are_told_how_many_give_the_likeliest(
    graphs: tuple[GraphContract, ...],
) -> None:
    assert scoring_rules(graphs) == ScoringRules(scores=True, alternatives=True)


def test_graphs_from_before_give_scores_alone(graphs: tuple[GraphContract, ...]) -> None:
    """One of two is enough: any of them may run."""
    first = next(i for i, g in enumerate(graphs) if g.operation is Operation.SCORED_PREFILL)
    bindings = tuple(
        binding
        for binding in graphs[first].bindings
        if binding.source is not ValueSource.SCORED_TOP_LOGPROBS
    )
    older = [replace(g, bindings=bindings) if i == first else g for i, g in enumerate(graphs)]
    assert scoring_rules(older) == ScoringRules(scores=True)


def test_cores_without_such_graphs_score_nothing(graphs: tuple[GraphContract, ...]) -> None:
    others = [g for g in graphs if g.operation is not Operation.SCORED_PREFILL]
    assert scoring_rules(others) == ScoringRules()


@pytest.mark.parametrize(
    ("wanted", "rules", "unsupported"),
    [
        (0, ScoringRules(), True),
        (1, ScoringRules(scores=True), True),
        (21, ScoringRules(True, True), False),
        (-1, ScoringRules(True, True), False),
    ],
)
def test_what_cant_be_had_is_said(wanted: int, rules: ScoringRules, unsupported: bool) -> None:
    fault = scoring_fault(wanted, rules)
    assert fault is not None
    assert fault.unsupported is unsupported
    assert fault.remedy


@pytest.mark.parametrize("wanted", [0, 20])
def test_what_can_be_had(wanted: int) -> None:
    assert scoring_fault(wanted, ScoringRules(True, True)) is None
    assert scoring_fault(0, ScoringRules(scores=True)) is None
