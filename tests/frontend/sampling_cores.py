"""Frontends of cores whose programs apply sampling parameters, or lack some."""

from __future__ import annotations

from dataclasses import replace

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import PreparedContract, ValueBinding
from helios.frontend.bootstrap import Frontend, assemble
from helios.runtime.sampling_rules import SamplingRules
from tests.frontend.vocabularies import CHAT_TEMPLATE, byte_level, prepared_contract

V = ValueSource
SOURCES = (
    V.REPETITION_PENALTY,
    V.PRESENCE_PENALTY,
    V.FREQUENCY_PENALTY,
    V.PROMPT_HISTOGRAM,
    V.OUTPUT_HISTOGRAM,
    V.RECENT_OUTPUT_TOKEN,
    V.LOGIT_BIAS_TOKEN,
    V.LOGIT_BIAS,
    V.TOKEN_MASK,
    V.BAD_WORD_TOKEN,
    V.MIN_TOKENS,
    V.STOP_TOKEN_ID,
    V.TOP_LOGPROBS,
)
EVERYTHING = SamplingRules(*[True] * 6)


def feeding(contract: PreparedContract, *sources: ValueSource) -> PreparedContract:
    """The contract with these sources in every graph that takes up requests, and none elsewhere."""
    admitting = (Operation.INITIALIZE, Operation.RESTORE, Operation.RESUME)
    graphs = []
    for graph in contract.model.graphs:
        bindings = [b for b in graph.bindings if b.source not in SOURCES]
        if graph.operation in admitting:
            bindings += [
                ValueBinding(source.name.lower(), source, Indexing.ACTIVE_ROW, 0, 0, 0, "")
                for source in sources
            ]
        graphs.append(replace(graph, bindings=tuple(bindings)))
    return replace(contract, model=replace(contract.model, graphs=tuple(graphs)))


def frontend(*sources: ValueSource, **recommended: float) -> Frontend:
    contract = feeding(prepared_contract(recommended), *sources)
    return assemble(contract, byte_level(), CHAT_TEMPLATE)
