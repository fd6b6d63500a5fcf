"""Random contracts for packing: destinations of every type, programs of every operation with their
bindings.

Everything follows from a `Random`, so that rare combinations are as likely as others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import ValueBinding
from helios.runtime.manifest import DType
from tests.runtime.binding_rules import (
    INTEGERS,
    KINDS,
    OPERATIONS,
    ROWS,
    UNSHIFTED,
    Ix,
    V,
    brings,
    indexings,
    limits,
)
from tests.runtime.naive_packing import ADMITTING
from tests.runtime.packing_bench import (
    CONTEXT_TOKENS,
    HISTOGRAM_TOKENS,
    MASK_WORDS,
    PAGES,
    SLOTS,
    Delta,
    Graph,
    Staged,
    bind,
)


@dataclass(frozen=True)
class Contract:
    """Graphs, destinations, and where page tables begin in their rows."""

    graphs: tuple[Graph, ...]
    destinations: dict[str, Staged | Delta]
    page_offsets: dict[str, int]
    state_rows: int


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
