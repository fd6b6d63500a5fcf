"""What a core's programs can say of a prompt's own tokens, and whether a request's wish fits.

Derived from a contract's graphs, as the rules of sampling are; no model is known. `selection` puts
the rules into the geometry, the frontend prepares requests by them, the scheduler checks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from helios.contract.enums import Operation, ValueSource
from helios.contract.model import GraphContract
from helios.dataclass import dataclass
from helios.kernels.catalogue import TOP_CAPACITY


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """`scores`: the logprob of each prompt token after the ones before it; `alternatives`: its
    place among all tokens and the likeliest ones there, too."""

    scores: bool = False
    alternatives: bool = False


# Those of cores that only generate.
NOTHING_SCORED: Final = ScoringRules()
_REMEDY: Final = "Leave it out, or prepare the model again, with programs that score prompts"


def scoring_rules(graphs: Iterable[GraphContract]) -> ScoringRules:
    """The rules of a contract's graphs, or of the selected ones."""
    told = [
        {binding.source for binding in graph.bindings}
        for graph in graphs
        if graph.operation is Operation.SCORED_PREFILL
    ]
    return ScoringRules(
        scores=bool(told),
        alternatives=bool(told)
        and all(ValueSource.SCORED_TOP_LOGPROBS in sources for sources in told),
    )


@dataclass(frozen=True, slots=True)
class ScoringFault:
    """What is wrong with the wish for scores, and what to do. `unsupported` says that it's the
    core's programs which can't."""

    what: str
    remedy: str
    unsupported: bool = False


def scoring_fault(top_logprobs: int, rules: ScoringRules) -> ScoringFault | None:
    """Why a prompt can't be scored with so many of the likeliest tokens at each of its own."""
    if not 0 <= top_logprobs <= TOP_CAPACITY:
        return ScoringFault(
            f"{top_logprobs} is out of range", f"Give a value from 0 to {TOP_CAPACITY}"
        )
    if not rules.scores:
        return ScoringFault("this core's programs don't score prompts", _REMEDY, unsupported=True)
    if top_logprobs and not rules.alternatives:
        return ScoringFault(
            "this core's programs score prompts without the likeliest tokens",
            "Ask for 0 of them, or prepare the model again",
            unsupported=True,
        )
    return None
