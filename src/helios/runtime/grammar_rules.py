"""Whether a core's programs can keep a request to a grammar, token by token.

Derived from a contract's graphs, as the rules of sampling are; no model is known. `selection` puts
it into the geometry, the frontend prepares requests by it, the scheduler checks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from helios.contract.enums import Operation, ValueSource
from helios.contract.model import GraphContract

# Operations that sample a token of each lane, or may.
_SAMPLING: Final = frozenset(
    (Operation.PREFILL, Operation.SCORED_PREFILL, Operation.DECODE, Operation.MIXED)
)
# What a request is told whose core's programs can't.
UNSUPPORTED: Final = "this core's programs take no grammar masks"
REMEDY: Final = "Leave it out, or prepare the model again"


def takes_grammars(graphs: Iterable[GraphContract]) -> bool:
    """Whether every graph that samples takes a mask for each lane, of a contract's graphs or of the
    selected ones: a token that one of them chose freely would be none of the grammar's."""
    fed = [
        any(binding.source is ValueSource.GRAMMAR_MASK for binding in graph.bindings)
        for graph in graphs
        if graph.operation in _SAMPLING
    ]
    return bool(fed) and all(fed)
