"""Random rounds of random contracts: lanes over slots that are used again and again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from helios.contract.enums import Operation
from helios.runtime.manifest import DType
from helios.runtime.rounds import (
    LaneAdmission,
    LaneExtras,
    LaneWork,
    Proposal,
    SamplingParameters,
)
from tests.contract.sample import PAGE_TOKENS
from tests.runtime.binding_rules import WITH_TOKENS, Ix, V
from tests.runtime.packing_bench import (
    CACHE_PAGES,
    CONTEXT_TOKENS,
    FEATURE_SLOTS,
    INPUT_TOKENS,
    MASK_WORDS,
    PAGES,
    SAMPLED_TOKENS,
    SLOTS,
    SNAPSHOTS,
    Delta,
    Graph,
)
from tests.runtime.random_contracts import Contract


@dataclass
class Slots:
    """What each slot serves: its generation and page list."""

    generations: list[int] = field(default_factory=lambda: [0] * SLOTS)
    pages: list[list[int]] = field(default_factory=lambda: [[] for _ in range(SLOTS)])


def make_cohort(random: Random, contract: Contract, graph: Graph, slots: Slots) -> list[LaneWork]:
    """The lanes of a round; a slot goes on with its request or begins another. Now and then a lane
    lacks something, or has what doesn't fit."""
    least = 2 if graph.operation is Operation.MIXED else 1
    taken = random.sample(range(SLOTS), random.randint(least, min(graph.lanes, SLOTS)))
    room = graph.packed_tokens
    lanes = []
    for number, slot in enumerate(taken):
        left = len(taken) - number - 1
        length = _length(random, graph, room - left, last=not left)
        room -= length
        work = _lane(random, contract, graph, slots, slot, length, last=not left)
        lanes.append(_spoiled(random, work) if random.random() < 0.05 else work)
    return lanes


def _length(random: Random, graph: Graph, room: int, *, last: bool) -> int:
    """Packed tokens of a lane."""
    if graph.operation is Operation.DECODE or (graph.operation is Operation.MIXED and not last):
        return 1
    if not graph.packed_tokens:
        return 0
    most = min(room, 5)
    if graph.operation is Operation.SPECULATIVE:
        most = min(graph.draft_tokens + 1, graph.target_tokens, room)
    return random.randint(1, most)


def _ids(random: Random, high: int, count: int) -> tuple[int, ...]:
    return tuple(random.randrange(high) for _ in range(count))


def _lane(
    random: Random,
    contract: Contract,
    graph: Graph,
    slots: Slots,
    slot: int,
    length: int,
    *,
    last: bool,
) -> LaneWork:
    if not slots.generations[slot] or random.random() < 0.3:
        slots.generations[slot] += random.randint(1, 120)
        slots.pages[slot] = []
    pages = slots.pages[slot]
    start = random.randint(0, CONTEXT_TOKENS - length)
    more = max(-(-(start + length) // PAGE_TOKENS) - len(pages), 0)
    more += random.randint(0, PAGES - len(pages) - more)
    pages.extend(_ids(random, CACHE_PAGES, more))
    extras = _extras(random, contract, graph, slots.generations[slot], start, length)
    assert extras.history is not None
    prompts = graph.operation in WITH_TOKENS and (graph.operation is not Operation.MIXED or last)
    return LaneWork(
        slot=slot,
        generation=slots.generations[slot],
        start=start,
        tokens=_ids(random, INPUT_TOKENS, length) if prompts else (),
        sample=random.random() < 0.5,
        pages=tuple(pages),
        admission=_admission(random, len(extras.history)),
        restore_row=random.randint(-1, SNAPSHOTS - 1),
        snapshot_row=random.randint(-1, SNAPSHOTS - 1),
        pending_token=random.randrange(SAMPLED_TOKENS),
        targets=random.choice([(), _ids(random, SAMPLED_TOKENS, length), (-1,) * length])
        if prompts
        else (),
        extras=extras,
    )


def _admission(random: Random, history: int) -> LaneAdmission:
    return LaneAdmission(
        SamplingParameters(
            temperature=random.random(),
            top_k=random.choice([0, 50, 300]),
            top_p=random.random(),
            min_p=random.random(),
            seed=random.getrandbits(64),
            repetition_penalty=random.choice([1.0, random.random()]),
            presence_penalty=random.random() - 0.5,
            frequency_penalty=random.random() - 0.5,
            min_tokens=random.randint(0, CONTEXT_TOKENS),
            logit_bias=tuple(
                (token, random.uniform(-100, 100))
                for token in _ids(random, SAMPLED_TOKENS, random.randint(0, 3))
            ),
            allowed_tokens=random.choice([None, _ids(random, SAMPLED_TOKENS, 4)]),
            bad_words=random.choice(
                [(), (_ids(random, SAMPLED_TOKENS, 2),), (_ids(random, SAMPLED_TOKENS, 1),)]
            ),
            stop_ids=_ids(random, SAMPLED_TOKENS, random.randint(0, 3)),
            top_logprobs=random.randint(0, 20),
        ),
        output_limit=random.randint(1, CONTEXT_TOKENS),
        emitted=random.randint(0, history),
        eos_ids=_ids(random, SAMPLED_TOKENS, random.choice([0, 1, 1, 3])),
    )


def _extras(
    random: Random, contract: Contract, graph: Graph, generation: int, start: int, length: int
) -> LaneExtras:
    proposal = None
    if length and random.random() < 0.6:
        masks = [random.randbytes(4 * MASK_WORDS) for _ in range(random.randint(0, length))]
        tokens = _ids(random, SAMPLED_TOKENS, random.randrange(length))
        proposal = Proposal(tokens, generation, start, masks)
    return LaneExtras(
        length=length if graph.operation in (Operation.SPECULATIVE, Operation.VISION) else 0,
        history=_ids(random, INPUT_TOKENS, random.randint(0, CONTEXT_TOKENS)),
        grammar_mask=random.choice([None, random.randbytes(4 * MASK_WORDS)]),
        proposal=proposal,
        feature_indices=random.choice([(), _ids(random, 100, length)]),
        context_indices=random.choice([(), (-1,) * length, _ids(random, 100, length)]),
        feature_slot=random.randint(-1, FEATURE_SLOTS - 1),
        images=_images(random, contract, graph, length),
        scored_top_logprobs=random.randint(0, 20),
    )


def _images(random: Random, contract: Contract, graph: Graph, length: int) -> dict[str, np.ndarray]:
    """The tensors that the graph's bindings name."""
    images = {}
    for binding in graph.bindings:
        destination = contract.destinations[binding.destination]
        if binding.source is not V.IMAGE_TENSOR or isinstance(destination, Delta):
            continue
        shape = destination.shape if destination.by_slot else destination.shape[1:]
        if binding.indexing is Ix.PACKED_TOKEN:
            shape = (length, *shape)
        numbers = np.random.default_rng(random.getrandbits(32))
        images[binding.image_tensor] = (
            np.asarray(numbers.random(shape, np.float32))
            if destination.dtype is DType.F32
            else np.asarray(numbers.integers(0, 120, shape, np.int16))
        )
    return images


WRONG_SAMPLING: tuple[dict[str, Any], ...] = (
    {"logit_bias": ((SAMPLED_TOKENS, 1.0),)},
    {"logit_bias": ((1, 1.0),) * 8},
    {"logit_bias": ((1, 1e39),)},
    {"allowed_tokens": (SAMPLED_TOKENS,)},
    {"bad_words": ((),)},
    {"bad_words": ((1, -1),)},
    {"bad_words": ((1, 2, 3, 4, 5, 6, 7),)},
    {"stop_ids": (-1,)},
)


def _spoiled(random: Random, work: LaneWork) -> LaneWork:
    """The lane without something, or with what can't be."""
    assert work.extras is not None
    assert work.admission is not None
    extras, admission = work.extras, work.admission
    candidates = [
        work._replace(admission=None),
        work._replace(admission=replace(admission, emitted=CONTEXT_TOKENS + 1)),
        *(
            work._replace(
                admission=replace(admission, sampling=replace(admission.sampling, **wrong))
            )
            for wrong in WRONG_SAMPLING
        ),
        work._replace(restore_row=SNAPSHOTS),
        work._replace(snapshot_row=-2),
        work._replace(pending_token=-1),
        work._replace(targets=(1,) * 13),
        work._replace(generation=2**63),
        work._replace(pages=work.pages[:-1]),
        work._replace(pages=(*work.pages, *range(PAGES))),
        work._replace(pages=(*work.pages[:-1], CACHE_PAGES)),
        work._replace(extras=replace(extras, history=None)),
        work._replace(extras=replace(extras, history=(INPUT_TOKENS,))),
        work._replace(extras=replace(extras, history=(1,) * (CONTEXT_TOKENS + 1))),
        work._replace(extras=replace(extras, grammar_mask=b"123")),
        work._replace(extras=replace(extras, images={})),
        work._replace(extras=replace(extras, feature_indices=(1,) * 13)),
        work._replace(extras=replace(extras, proposal=Proposal((1,) * 9, 1, 0, (b"",) * 9))),
    ]
    return random.choice(candidates)
