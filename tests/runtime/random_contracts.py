"""Random contracts and cohorts for packing: destinations of every type, programs of every operation
with their bindings, rounds over slots that are used again and again.

Everything follows from a `Random`, so that rare combinations are as likely as others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import ValueBinding
from helios.runtime.manifest import DType
from helios.runtime.rounds import (
    LaneAdmission,
    LaneExtras,
    LaneWork,
    Proposal,
    SamplingParameters,
)
from tests.contract.sample import PAGE_TOKENS
from tests.runtime.naive_packing import ADMITTING
from tests.runtime.packing_bench import (
    CACHE_PAGES,
    CONTEXT_TOKENS,
    FEATURE_SLOTS,
    HISTOGRAM_TOKENS,
    INPUT_TOKENS,
    MASK_WORDS,
    PAGES,
    SAMPLED_TOKENS,
    SLOTS,
    SNAPSHOTS,
    Delta,
    Graph,
    Staged,
    bind,
)

V, Ix = ValueSource, Indexing
ROWS = 12
INTEGERS = (DType.U8, DType.I8, DType.I32, DType.U32, DType.I64, DType.U64)
ROUND = (V.CONSTANT, V.LIVE_ROW_COUNT, V.LIVE_TOKEN_COUNT, V.MIXED_PREFILL_ROW)
TOKEN = (
    V.PROMPT_TOKEN,
    V.SCORED_TARGET_TOKEN,
    V.PROMPT_POSITION,
    V.IMAGE_FEATURE_INDEX,
    V.IMAGE_CONTEXT_INDEX,
)
REAL = (
    V.TEMPERATURE,
    V.TOP_P,
    V.MIN_P,
    V.REPETITION_PENALTY,
    V.PRESENCE_PENALTY,
    V.FREQUENCY_PENALTY,
)
LANE = (
    V.SLOT,
    V.GENERATION,
    V.QUERY_LENGTH,
    V.SPECULATIVE_PREFIX_LIMIT,
    V.SAMPLING_DECISION,
    V.PENDING_TOKEN,
    V.IMAGE_FEATURE_SLOT,
    V.LIVE_STATE_ROW,
    V.RESTORE_SOURCE,
    V.SNAPSHOT_DESTINATION,
    V.CONSUMED_TOKENS,
    V.TOP_K,
    V.OUTPUT_LIMIT,
    V.EMITTED_TOKENS,
    V.MIN_TOKENS,
    V.TOP_LOGPROBS,
    V.SCORED_TOP_LOGPROBS,
    V.PROPOSAL_COUNT,
    V.PROPOSAL_GENERATION,
    V.PROPOSAL_ENDPOINT,
)
HISTOGRAMS = (V.PROMPT_HISTOGRAM, V.OUTPUT_HISTOGRAM)
# What can fill a destination of each kind.
KINDS: dict[str, tuple[ValueSource, ...]] = {
    "integer": (*ROUND, *TOKEN, *LANE),
    "real": (*REAL, V.CONSTANT),
    "seed": (V.SEED,),
    "eos": (V.EOS_IDS,),
    "ids": (V.LOGIT_BIAS_TOKEN, V.STOP_TOKEN_ID, V.RECENT_OUTPUT_TOKEN),
    "biases": (V.LOGIT_BIAS,),
    "words": (V.BAD_WORD_TOKEN,),
    "histogram": HISTOGRAMS,
    "mask": (V.GRAMMAR_MASK, V.PROPOSAL_GRAMMAR_MASK, V.TOKEN_MASK),
    "masks": (V.PROPOSAL_GRAMMAR_MASK,),
    "proposal": (V.PROPOSAL_TOKEN,),
    "tensor": (V.IMAGE_TENSOR,),
    "pages": (V.PAGE_TABLE,),
    "histogram delta": HISTOGRAMS,
}
LISTS = (
    V.LOGIT_BIAS_TOKEN,
    V.LOGIT_BIAS,
    V.STOP_TOKEN_ID,
    V.RECENT_OUTPUT_TOKEN,
    V.BAD_WORD_TOKEN,
    V.TOKEN_MASK,
)
ADMITTED = (
    *REAL,
    *LISTS,
    V.SEED,
    V.EOS_IDS,
    V.TOP_K,
    V.OUTPUT_LIMIT,
    V.EMITTED_TOKENS,
    V.MIN_TOKENS,
    V.TOP_LOGPROBS,
)
PROPOSED = (
    V.SPECULATIVE_PREFIX_LIMIT,
    V.PROPOSAL_TOKEN,
    V.PROPOSAL_COUNT,
    V.PROPOSAL_GENERATION,
    V.PROPOSAL_ENDPOINT,
    V.PROPOSAL_GRAMMAR_MASK,
)
WITH_TOKENS = (Operation.PREFILL, Operation.SCORED_PREFILL, Operation.MIXED)
CONSUMES_PENDING = (Operation.DECODE, Operation.SPECULATIVE, Operation.MIXED, Operation.RESUME)
OPERATIONS = (
    Operation.INITIALIZE,
    Operation.RESTORE,
    Operation.SNAPSHOT,
    Operation.PREFILL,
    Operation.SCORED_PREFILL,
    Operation.RESUME,
    Operation.DECODE,
    Operation.SPECULATIVE,
    Operation.MIXED,
    Operation.VISION,
)
UNSHIFTED = (
    *REAL,
    *LISTS,
    *HISTOGRAMS,
    V.SEED,
    V.EOS_IDS,
    V.PAGE_TABLE,
    V.GRAMMAR_MASK,
    V.PROPOSAL_GRAMMAR_MASK,
)


@dataclass(frozen=True)
class Contract:
    """Graphs, destinations, and where page tables begin in their rows."""

    graphs: tuple[Graph, ...]
    destinations: dict[str, Staged | Delta]
    page_offsets: dict[str, int]
    state_rows: int


def brings(operation: Operation, source: ValueSource, kind: str) -> bool:
    """Whether lanes of an operation can have a source for a destination of a kind."""
    if kind == "histogram":
        return operation in ADMITTING
    if source in ADMITTED:
        return operation in ADMITTING
    if source in PROPOSED:
        return operation is Operation.SPECULATIVE
    if source is V.MIXED_PREFILL_ROW:
        return operation is Operation.MIXED
    if source in (V.PROMPT_TOKEN, V.SCORED_TARGET_TOKEN, V.SCORED_TOP_LOGPROBS):
        return operation in WITH_TOKENS
    return source is not V.PENDING_TOKEN or operation in CONSUMES_PENDING


def indexings(source: ValueSource, kind: str, graph: Graph) -> list[Indexing]:
    """Those under which a source can fill a destination of a kind."""
    if kind in ("pages", "histogram delta"):
        return [Ix.PHYSICAL_REQUEST_ROW]
    rows = [Ix.SUBMISSION_ROW, Ix.ACTIVE_ROW, Ix.PHYSICAL_REQUEST_ROW]
    packed = [Ix.PACKED_TOKEN] if graph.packed_tokens else []
    if source in TOKEN:
        return packed
    if source is V.SPECULATIVE_PREFIX_LIMIT:
        return rows
    if source is V.PROPOSAL_GRAMMAR_MASK:
        return packed if kind == "mask" else rows
    if source in ROUND or (source is V.IMAGE_TENSOR and graph.lanes == 1):
        return [Ix.SCALAR, *rows, *packed]
    return [*rows, *packed]


def span(source: ValueSource, graph: Graph, state_rows: int) -> tuple[int, int] | None:
    """Least and largest value of a source, where it is known before any round."""
    lanes = min(graph.lanes, SLOTS)
    return {
        V.SLOT: (0, SLOTS - 1),
        V.LIVE_ROW_COUNT: (1, lanes),
        V.LIVE_TOKEN_COUNT: (0, graph.packed_tokens),
        V.QUERY_LENGTH: (0, graph.packed_tokens),
        V.SPECULATIVE_PREFIX_LIMIT: (1, graph.target_tokens),
        V.SAMPLING_DECISION: (0, 1),
        V.MIXED_PREFILL_ROW: (1, lanes - 1),
        V.PROMPT_TOKEN: (0, INPUT_TOKENS - 1),
        V.SCORED_TARGET_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.PENDING_TOKEN: (-1, INPUT_TOKENS - 1),
        V.PROMPT_POSITION: (0, CONTEXT_TOKENS - 1),
        V.IMAGE_FEATURE_INDEX: (-1, 0),
        V.IMAGE_CONTEXT_INDEX: (-1, 0),
        V.IMAGE_FEATURE_SLOT: (-1, FEATURE_SLOTS - 1),
        V.LIVE_STATE_ROW: (0, SLOTS * state_rows - 1),
        V.RESTORE_SOURCE: (-1, (SLOTS + SNAPSHOTS) * state_rows - 1),
        V.SNAPSHOT_DESTINATION: (-1, (SLOTS + SNAPSHOTS) * state_rows - 1),
        V.CONSUMED_TOKENS: (0, CONTEXT_TOKENS),
        V.SEED: (0, 2**32 - 1),
        V.OUTPUT_LIMIT: (0, CONTEXT_TOKENS),
        V.EMITTED_TOKENS: (0, CONTEXT_TOKENS),
        V.EOS_IDS: (-1, SAMPLED_TOKENS - 1),
        V.PROMPT_HISTOGRAM: (0, CONTEXT_TOKENS),
        V.OUTPUT_HISTOGRAM: (0, CONTEXT_TOKENS),
        V.MIN_TOKENS: (0, CONTEXT_TOKENS),
        V.TOP_LOGPROBS: (0, 20),
        V.SCORED_TOP_LOGPROBS: (0, 20),
        V.LOGIT_BIAS_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.STOP_TOKEN_ID: (-1, SAMPLED_TOKENS - 1),
        V.RECENT_OUTPUT_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.BAD_WORD_TOKEN: (0, SAMPLED_TOKENS - 1),
        V.PROPOSAL_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.PROPOSAL_COUNT: (0, graph.target_tokens),
        V.PROPOSAL_ENDPOINT: (-1, CONTEXT_TOKENS),
    }.get(source)


def limits(dtype: DType) -> tuple[int, int]:
    bits = {DType.U8: 8, DType.I8: 8, DType.I64: 64, DType.U64: 64}.get(dtype, 32)
    if dtype in (DType.U8, DType.U32, DType.U64):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def fits(binding: ValueBinding, graph: Graph, dtype: DType, state_rows: int) -> bool:
    """Whether a destination holds whatever its source may be; an absent −1 is never shifted."""
    possible = span(binding.source, graph, state_rows)
    if binding.source is V.CONSTANT:
        possible = binding.constant, binding.constant
    if possible is None or dtype is DType.F32:
        return True
    low, high = possible
    if binding.source is not V.CONSTANT and low == -1:
        return fits_all((-1, binding.offset, high + binding.offset), dtype)
    return fits_all((low + binding.offset, high + binding.offset), dtype)


def fits_all(values: tuple[int, ...], dtype: DType) -> bool:
    return all(limits(dtype)[0] <= value <= limits(dtype)[1] for value in values)


def make_contract(random: Random, destinations: int, programs: int) -> Contract:
    """A contract of so many destinations and programs. Half of the destinations take integers:
    most sources are one."""
    width = random.randint(1, 4)
    kinds = [random.choice(["integer", random.choice(sorted(KINDS))]) for _ in range(destinations)]
    made = {f"d{i}": make_destination(random, kind, width) for i, kind in enumerate(kinds)}
    # One table of pages: two destinations may send to it, each from its own place.
    shifts = random.choice([(0, 0), (1, 1), (0, PAGES), (PAGES, 0)])
    pages = [f"d{i}" for i, kind in enumerate(kinds) if kind == "pages"]
    offsets = {name: shifts[i % 2] for i, name in enumerate(pages)}
    graphs = []
    for number in range(programs):
        graph = make_extents(random, random.choice(OPERATIONS), width)
        graph = replace(graph, name=f"p{number}")
        found = []
        places: set[tuple[str, int]] = set()
        for i, kind in enumerate(kinds):
            binding = _binding(random, f"d{i}", kind, graph, made[f"d{i}"])
            if binding is None:
                continue
            # No two bindings of a graph send the same entries.
            if kind in ("pages", "histogram delta"):
                place = kind, offsets.get(binding.destination, 0)
                if place in places:
                    continue
                places.add(place)
            found.append(binding)
        if any(b.source is V.SPECULATIVE_PREFIX_LIMIT for b in found):
            unknown = (V.LIVE_TOKEN_COUNT, V.QUERY_LENGTH)
            found = [b for b in found if b.indexing is not Ix.PACKED_TOKEN]
            found = [b for b in found if b.source not in unknown]
        graphs.append(replace(graph, bindings=tuple(found)))
    state_rows = max(graph.state_rows for graph in graphs)
    return Contract(tuple(graphs), made, offsets, state_rows)


def make_destination(random: Random, kind: str, width: int) -> Staged | Delta:
    """A destination of a kind; speculative programs have `width` target tokens."""
    if kind == "pages":
        return Delta("page_table", 2 * PAGES + 1, SLOTS * PAGES + random.randint(0, 2))
    if kind == "histogram delta":
        entries = SLOTS * min(HISTOGRAM_TOKENS, CONTEXT_TOKENS)
        return Delta("histogram", HISTOGRAM_TOKENS, entries, random.choice([DType.I32, DType.U32]))
    dtype = random.choice([DType.I32, random.choice(INTEGERS)])
    columns: tuple[int, ...] = random.choice([(), (1,)])
    if kind == "real" or (kind == "tensor" and random.random() < 0.5):
        dtype = DType.F32
    if kind == "tensor":
        columns = random.choice([(), (3,), (2, 2)])
    if kind == "seed":
        dtype, columns = random.choice([DType.U32, DType.I64, DType.U64]), (2,)
    if kind == "eos":
        dtype = random.choice([DType.I8, DType.I32, DType.I64])
        columns = random.choice([(), (1,), (3,)])
    if kind in ("ids", "words"):
        dtype = random.choice([DType.I8, DType.I32, DType.I64])
        columns = random.choice([(3,), (7,)])
    if kind == "biases":
        dtype, columns = DType.F32, random.choice([(3,), (7,)])
    if kind == "histogram":
        columns = (HISTOGRAM_TOKENS,)
    if kind in ("mask", "masks"):
        dtype = DType.U32
        columns = (MASK_WORDS,) if kind == "mask" else (width, MASK_WORDS)
    if kind == "proposal":
        dtype = random.choice([DType.I8, DType.I32, DType.I64])
        columns = (3,)
    if random.random() < 0.25:
        return Staged(dtype, columns, by_slot=True)
    return Staged(dtype, (ROWS + random.randint(0, 2), *columns))


def make_extents(random: Random, operation: Operation, width: int) -> Graph:
    """A program of an operation without bindings; `width` is that of speculation."""
    lanes = random.randint(1, 4)
    graph = Graph(operation, (), lanes, 0, 1, random.randint(lanes, ROWS), random.randint(1, 3))
    if operation is Operation.DECODE:
        return replace(graph, packed_tokens=lanes)
    if operation is Operation.MIXED:
        return replace(graph, lanes=max(lanes, 2), packed_tokens=max(graph.packed_tokens, 4))
    if operation is Operation.SPECULATIVE:
        packed = random.randint(lanes, min(lanes * width, ROWS))
        draws = random.randint(0, width) if width > 1 else 0
        return replace(graph, draft_tokens=draws, target_tokens=width, packed_tokens=packed)
    if operation in ADMITTING or operation is Operation.SNAPSHOT:
        return replace(graph, target_tokens=0, packed_tokens=0, lanes=random.randint(1, 7))
    return graph


def _binding(
    random: Random, name: str, kind: str, graph: Graph, destination: Staged | Delta
) -> ValueBinding | None:
    """A binding of a destination in a program, or none: then its bytes stay."""
    sources = [source for source in KINDS[kind] if brings(graph.operation, source, kind)]
    if not sources or random.random() < 0.2:
        return None
    source = random.choice(sources)
    allowed = allowed_indexings(source, kind, graph, destination)
    if not allowed:
        return None
    return make_binding(random, name, source, random.choice(allowed), graph, destination)


def allowed_indexings(
    source: ValueSource, kind: str, graph: Graph, destination: Staged | Delta
) -> list[Indexing]:
    """Those under which a source can fill a destination, and has the rows for it."""
    allowed = indexings(source, kind, graph)
    if isinstance(destination, Staged) and destination.by_slot:
        need = {Ix.PACKED_TOKEN: graph.packed_tokens, Ix.SUBMISSION_ROW: graph.lanes}
        return [indexing for indexing in allowed if need.get(indexing, 1) <= SLOTS]
    return allowed


def make_binding(
    random: Random,
    name: str,
    source: ValueSource,
    indexing: Indexing,
    graph: Graph,
    destination: Staged | Delta,
) -> ValueBinding:
    """A binding with its offset and padding."""
    real = destination.dtype is DType.F32
    shifts = source not in UNSHIFTED and not (real and source is V.IMAGE_TENSOR)
    low, high = (-100, 100) if real else limits(destination.dtype)
    return bind(
        name,
        source,
        indexing,
        offset=random.choice([0, 0, 1, -1, 3, 1000]) if shifts else 0,
        padding=random.choice([low, high, 0, min(7, high)]),
        constant=random.randint(-2, 100) if source is V.CONSTANT else 0,
        tensor=f"{graph.name}.{name}" if source is V.IMAGE_TENSOR else "",
    )


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
