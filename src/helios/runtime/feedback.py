"""Which graphs need the host to know a lane's last completion before they can be submitted.

Derived for each selected graph from its own inputs; no operation, mode or model decides for
another. `selection` writes it into the geometry, the scheduler waits accordingly. Grammar masks are
known without a completion for lanes that have no grammar, so that only the others wait for one.
"""

from __future__ import annotations

from typing import Final

from helios.contract.enums import ValueSource
from helios.contract.model import GraphContract, ValueBinding
from helios.runtime.lanes import TAKES_EMITTED

# Values that follow from the tokens that a lane has emitted so far.
_FROM_COMPLETIONS: Final = frozenset(
    (
        ValueSource.PENDING_TOKEN,
        ValueSource.GRAMMAR_MASK,
        ValueSource.PROPOSAL_TOKEN,
        ValueSource.PROPOSAL_COUNT,
        ValueSource.PROPOSAL_GENERATION,
        ValueSource.PROPOSAL_ENDPOINT,
        ValueSource.PROPOSAL_GRAMMAR_MASK,
    )
)


def feedback_inputs(graph: GraphContract) -> tuple[ValueBinding, ...]:
    """The bindings whose values the host has only from the request's previous completion. A graph
    that takes up no emitted token has none: what it is fed is known with the prompt."""
    if graph.operation not in TAKES_EMITTED:
        return ()
    bindings = list(graph.bindings)
    if graph.pending_token is not None and graph.pending_token.host_binding is not None:
        bindings.append(graph.pending_token.host_binding)
    return tuple(binding for binding in bindings if binding.source in _FROM_COMPLETIONS)


def is_host_fed(graph: GraphContract) -> bool:
    """Whether rounds of the graph wait for the previous completions of all their lanes."""
    return any(binding.source is not ValueSource.GRAMMAR_MASK for binding in feedback_inputs(graph))
