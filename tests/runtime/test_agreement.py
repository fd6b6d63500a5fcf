"""Contract against manifest: one thing is broken at a time, and its field and graph are named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helios.contract import decode
from helios.errors import ContractError
from helios.kernels.catalogue import BY_NAME
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.null import NullDevice
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.schema import contract_pb2 as c
from helios.schema import execution_pb2 as pb
from tests.contract.sample import bind, sample_contract
from tests.runtime.sample_manifest import sample_manifest, sample_weights

Change = Callable[[pb.ExecutionManifest, c.ServingContract], object]
Case = tuple[str, str, Change]
DECODE = 3  # decode.b1 in both


def index_of(manifest: pb.ExecutionManifest, name: str) -> int:
    return [buffer.name for buffer in manifest.buffers].index(name)


def buffer(manifest: pb.ExecutionManifest, name: str) -> pb.Buffer:
    return manifest.buffers[index_of(manifest, name)]


def operand(
    manifest: pb.ExecutionManifest, launch: int, position: int, program: int = DECODE
) -> pb.Operand:
    return manifest.programs[program].launches[launch].operands[position]


def point(
    manifest: pb.ExecutionManifest, launch: int, position: int, name: str, program: int = DECODE
) -> None:
    """Lets an operand name another buffer."""
    operand(manifest, launch, position, program).buffer = index_of(manifest, name) + 1


def put(message: object, **values: object) -> None:
    for field, value in values.items():
        setattr(message, field, value)


def graph(contract: c.ServingContract, number: int = DECODE) -> c.GraphContract:
    return contract.model.graphs[number]


def retype(manifest: pb.ExecutionManifest, name: str, dtype: pb.DType, shape: list[int]) -> None:
    sizes = {pb.DTYPE_I32: 4, pb.DTYPE_F32: 4, pb.DTYPE_I64: 8, pb.DTYPE_BF16: 2}
    found = buffer(manifest, name)
    nbytes = sizes[dtype]
    for extent in shape:
        nbytes *= extent
    put(found, dtype=dtype, nbytes=nbytes)
    found.shape[:] = shape


def add_state(
    manifest: pb.ExecutionManifest, name: str, kind: pb.BufferClass, nbytes: int, **more: int
) -> None:
    manifest.buffers.add(
        name=name, buffer_class=kind, dtype=pb.DTYPE_U8, packing=pb.PACKING_PLAIN,
        leading=more.get("leading", pb.LEADING_COUNT_FIXED), shape=[nbytes], nbytes=nbytes,
    )  # fmt: skip


def copy_program(manifest: pb.ExecutionManifest, contract: c.ServingContract, name: str) -> None:
    manifest.programs.add().CopyFrom(manifest.programs[DECODE])
    put(manifest.programs[-1], name=name)


D, G = "programs[3]", "model.graphs[3]"
DECODE_B1, OF = "(program decode.b1)", "(graph decode.b1)"

OPERATIONS: list[Case] = [
    ("programs[6].name", "(program extra)", lambda x, y: copy_program(x, y, "extra")),
    ("model.graphs[5].name", "(graph decode.b4)", lambda x, y: x.programs.__delitem__(5)),
    (f"{G}.operation", OF, lambda x, y: put(x.programs[DECODE], operation=c.OPERATION_RESUME)),
    (f"{G}.operation", OF, lambda x, y: put(graph(y), operation=c.OPERATION_MIXED)),
    (f"{G}.accesses[0].mode", OF, lambda x, y: x.programs[DECODE].ClearField("accesses")),
    (f"{G}.accesses[1].mode", OF, lambda x, y: put(x.programs[DECODE].accesses[1], mode=1)),
    (f"{G}.accesses", OF, lambda x, y: x.programs[DECODE].accesses.add(view="more", mode=1)),
    (f"{G}.confidence_width", OF, lambda x, y: _speculative(x, y, confidence=2)),
    (f"{G}.confidence_width", OF, lambda x, y: _speculative(x, y, confidence=1)),
    (f"{D}.completion", DECODE_B1, lambda x, y: x.programs[DECODE].ClearField("completion")),
    (f"{D}.completion", DECODE_B1, lambda x, y: _two_logprobs(x)),
    (
        f"{D}.launches[5].operands[8].buffer",
        DECODE_B1,
        lambda x, y: (_two_logprobs(x), point(x, 5, 8, "other.lanes")),
    ),
]

BUFFERS: list[Case] = [
    (f"{D}.launches[1].operands[1].buffer", DECODE_B1, lambda x, y: point(x, 1, 1, "in.sample")),
    (f"{D}.inputs[0]", DECODE_B1, lambda x, y: x.programs[DECODE].launches.__delitem__(0)),
    (
        f"{D}.launches[0].operands[3].buffer",
        DECODE_B1,
        lambda x, y: [put(p.accesses[2], mode=1) for p in (x.programs[DECODE], graph(y))],
    ),
    (
        f"{D}.launches[0].operands[3].buffer",
        DECODE_B1,
        lambda x, y: [p.accesses.__delitem__(2) for p in (x.programs[DECODE], graph(y))],
    ),
    (
        "programs[0].accesses[2].mode",
        "(program initialize.b4)",
        lambda x, y: [
            p.accesses.add(view="page_table", mode=2) for p in (x.programs[0], graph(y, 0))
        ],
    ),
    (
        f"{D}.launches[1].operands[3].buffer",
        DECODE_B1,
        lambda x, y: (
            y.model.state_views.add(name="other", buffer="other", row_stride=4, byte_extent=4),
            add_state(x, "other", pb.BUFFER_CLASS_STATE, 128, leading=2),
            put(y.model.state_views[-1], row_stride=128),
            point(x, 1, 3, "other"),
        ),
    ),
]

BINDINGS: list[Case] = [
    (
        f"{G}.bindings[4].destination",
        OF,
        lambda x, y: graph(y).bindings.append(bind("nothing", "SLOT", "ACTIVE_ROW")),
    ),
    (
        f"{G}.bindings[4].destination",
        OF,
        lambda x, y: graph(y).bindings.append(bind("seed", "SEED", "ACTIVE_ROW")),
    ),
    (
        f"{G}.pending_token.host_binding.destination",
        OF,
        lambda x, y: graph(y).pending_token.host_binding.CopyFrom(
            bind("tokens", "PENDING_TOKEN", "ACTIVE_ROW")
        ),
    ),
    (
        f"{G}.bindings[3].source",
        OF,
        lambda x, y: put(graph(y).bindings[3], source=c.VALUE_SOURCE_SLOT),
    ),
    (f"{G}.bindings[3].indexing", OF, lambda x, y: put(graph(y).bindings[3], indexing=3)),
    (f"{G}.bindings", OF, lambda x, y: graph(y).bindings.__delitem__(3)),
    (
        f"{G}.bindings[1].destination",
        OF,
        lambda x, y: put(graph(y).bindings[1], source=c.VALUE_SOURCE_PAGE_TABLE),
    ),
    (f"{G}.bindings[1].indexing", OF, lambda x, y: put(graph(y).bindings[1], indexing=1)),
    (
        f"{G}.bindings[1].padding",
        OF,
        lambda x, y: put(graph(y).bindings[1], indexing=2, padding=1 << 40),
    ),
    (
        f"{G}.bindings[1].constant",
        OF,
        lambda x, y: put(graph(y).bindings[1], source=c.VALUE_SOURCE_CONSTANT, constant=1 << 31),
    ),
    (
        "model.graphs[0].bindings[7].offset",
        "(graph initialize.b4)",
        lambda x, y: put(graph(y, 0).bindings[7], offset=1),
    ),
    (
        "model.graphs[0].bindings[1].destination",
        "(graph initialize.b4)",
        lambda x, y: put(graph(y, 0).bindings[1], offset=1 << 31),
    ),
    (f"{G}.bindings[3].offset", OF, lambda x, y: put(graph(y).bindings[3], offset=1)),
    (
        "model.graphs[0].bindings[11].destination",
        "17 end-of-sequence ids (graph initialize.b4)",
        lambda x, y: y.model.frontend.eos_ids.extend(range(4, 19)),
    ),
    # dtypes and extents
    (
        "model.graphs[0].bindings[1].destination",
        "(graph initialize.b4)",
        lambda x, y: retype(x, "in.slot", pb.DTYPE_F32, [4]),
    ),
    (
        "model.graphs[0].bindings[1].destination",
        "(graph initialize.b4)",
        lambda x, y: retype(x, "in.slot", pb.DTYPE_BF16, [4]),
    ),
    (
        "model.graphs[0].bindings[7].destination",
        "(graph initialize.b4)",
        lambda x, y: retype(x, "in.temperature", pb.DTYPE_I32, [4]),
    ),
    (
        "model.graphs[0].bindings[6].destination",
        "(graph initialize.b4)",
        lambda x, y: retype(x, "in.seed", pb.DTYPE_I32, [4, 3]),
    ),
    (
        "model.graphs[0].bindings[1].destination",
        "(graph initialize.b4)",
        lambda x, y: retype(x, "in.slot", pb.DTYPE_I32, [3]),
    ),
    (
        "model.graphs[2].bindings[6].destination",
        "(graph prefill.p16)",
        lambda x, y: retype(x, "in.tokens", pb.DTYPE_I32, [15]),
    ),
]

STORAGE: list[Case] = [
    ("model.state_views[0].buffer", "'request'", lambda x, y: put(_view(y), buffer="nothing")),
    ("model.state_views[0].buffer", "'request'", lambda x, y: put(_view(y), buffer="x")),
    ("model.state_views[0].row_stride", "'request'", lambda x, y: put(_view(y), row_stride=256)),
    ("model.state_views[0].byte_extent", "'request'", lambda x, y: put(_view(y), byte_offset=1)),
    (
        "model.state_views[3].byte_extent",
        "'fixed' ends at byte 32 of 'fixed', past its 31",
        lambda x, y: (
            add_state(x, "fixed", pb.BUFFER_CLASS_STATE, 31),
            y.model.state_views.add(name="fixed", buffer="fixed", row_stride=8, byte_extent=8),
        ),
    ),
    (
        "model.cache.regions[0].planes[1]",
        "(region attention)",
        lambda x, y: _region(y).planes.__setitem__(1, "request_state"),
    ),
    (
        "model.cache.regions[0].planes[1]",
        "(region attention)",
        lambda x, y: _region(y).planes.__setitem__(1, "nothing"),
    ),
    (
        "model.cache.regions[0].planes[0]",
        "no dimension of its 2 records",
        lambda x, y: (put(_region(y), tokens_per_record=2), None),
    ),
    (
        "model.cache.regions[0].planes[0]",
        "(region attention)",
        lambda x, y: put(buffer(x, "cache.k.0"), leading=pb.LEADING_COUNT_SNAPSHOT_ROWS),
    ),
    (
        "model.cache.regions[0].planes[0]",
        "(region attention)",
        lambda x, y: put(_region(y), kind=c.CACHE_REGION_KIND_RECURRENT, tokens_per_record=0),
    ),
    ("buffers[24].name", "'cache.v.0'", lambda x, y: _region(y).planes.__delitem__(1)),
    (
        f"{D}.launches[6].integers[4]",
        DECODE_B1,
        lambda x, y: _attention(x, page_tokens=8, table_pages=6),
    ),
    (
        f"{D}.launches[6].integers[5]",
        DECODE_B1,
        lambda x, y: _attention(x, page_tokens=4, table_pages=5),
    ),
    (
        "model.cache.page_tables[0].destination",
        "'pages'",
        lambda x, y: put(y.model.cache.page_tables[0], destination="nothing"),
    ),
    (
        "model.cache.page_tables[0].destination",
        "'pages'",
        lambda x, y: put(y.model.cache.page_tables[0], destination="slot"),
    ),
    (
        "model.cache.page_tables[0].destination",
        "23 entries can be sent, but 4 lanes of 6 pages",
        lambda x, y: [
            retype(x, f"in.page_table.{n}", pb.DTYPE_I32, [23]) for n in ("index", "value")
        ],
    ),
    (
        "model.cache.page_tables[0].page_offset",
        "'page_table'",
        lambda x, y: put(y.model.cache.page_tables[0], page_offset=6),
    ),
    (
        "max_context_tokens",
        "'page_table'",
        lambda x, y: put(y.model.cache.page_tables[0], page_offset=1),
    ),
    ("max_context_tokens", "'page_table'", lambda x, y: put(y, max_context_tokens=25)),
]

EXTENTS: list[Case] = [
    ("prefill_extents", "PREFILL", lambda x, y: y.prefill_extents.append(32)),
    ("prefill_extents", "PREFILL", lambda x, y: y.prefill_extents.__delitem__(1)),
    ("max_active", "DECODE", lambda x, y: put(y, max_active=5)),
    ("max_active", "DECODE", lambda x, y: _remove(x, y, 5)),
    ("programs", "no INITIALIZE program", lambda x, y: _remove(x, y, 0)),
    ("programs", "no DECODE program", lambda x, y: [_remove(x, y, 3) for _ in range(3)]),
    (f"{D}.token_capacity", DECODE_B1, lambda x, y: put(x.programs[DECODE], token_capacity=0)),
    (f"{D}.token_capacity", DECODE_B1, lambda x, y: put(x.programs[DECODE], token_capacity=2)),
    (
        f"{D}.packed_token_capacity",
        DECODE_B1,
        lambda x, y: put(x.programs[DECODE], packed_token_capacity=2),
    ),
    (f"{D}.draft_tokens", DECODE_B1, lambda x, y: put(x.programs[DECODE], draft_tokens=1)),
    (
        "programs[1].packed_token_capacity",
        "(program prefill.p8)",
        lambda x, y: (
            put(x.programs[1], packed_token_capacity=3),
            y.prefill_extents.__setitem__(0, 3),
        ),
    ),
    (
        "programs[2].batch_capacity",
        "(program prefill.p16)",
        lambda x, y: put(x.programs[2], batch_capacity=3),
    ),
    (
        "speculative_widths[0]",
        "no SPECULATIVE program",
        lambda x, y: y.speculative_widths.append(4),
    ),
    (
        f"{D}.token_capacity",
        DECODE_B1,
        lambda x, y: (_speculative(x, y), y.speculative_widths.pop()),
    ),
    ("max_active", "of width 1 take 1 lanes", lambda x, y: _speculative(x, y)),
    (f"{D}.draft_tokens", DECODE_B1, lambda x, y: _speculative(x, y, draft=1)),
    (f"{D}.packed_token_capacity", DECODE_B1, lambda x, y: _speculative(x, y, packed=2)),
    (f"{D}.packed_token_capacity", DECODE_B1, lambda x, y: _speculative(x, y, packed=0)),
    (
        f"{D}.token_capacity",
        "a row of 'tokens' has 1",
        lambda x, y: _speculative(x, y, width=2, packed=2),
    ),
]


def _view(contract: c.ServingContract) -> c.StateView:
    return contract.model.state_views[0]


def _region(contract: c.ServingContract) -> c.CacheRegion:
    return contract.model.cache.regions[0]


def _remove(manifest: pb.ExecutionManifest, contract: c.ServingContract, number: int) -> None:
    del manifest.programs[number]
    del contract.model.graphs[number]


def _two_logprobs(manifest: pb.ExecutionManifest) -> None:
    """Gives decode.b1 a record with logprobs of its own, which it doesn't write."""
    for part in ("lanes", "logprobs"):
        copy = manifest.buffers.add()
        copy.CopyFrom(buffer(manifest, f"completion.{part}"))
        copy.name = f"other.{part}"
    manifest.completions.add(
        name="other",
        lanes="completion.lanes",
        tokens="completion.tokens",
        logprobs="other.logprobs",
    )
    point(manifest, 5, 10, "scores")
    manifest.programs[DECODE].completion = "other"


def _attention(manifest: pb.ExecutionManifest, *, page_tokens: int, table_pages: int) -> None:
    """A launch of attention at the end of decode.b1."""
    spec = BY_NAME["attention"]
    manifest.kernels.add(
        name=spec.name,
        operands=[o.name for o in spec.operands],
        integers=spec.integers,
        floats=spec.floats,
    )
    names = "in.live_rows logits pending_position in.slot page_table cache.k.0 cache.v.0 x"
    launch = manifest.programs[DECODE].launches.add(
        kernel=len(manifest.kernels) - 1,
        integers=[1, 1, 1, 4, page_tokens, table_pages, 0, 0],
        floats=[1.0],
    )
    for spec_operand, name in zip(spec.operands, names.split(), strict=True):
        launch.operands.add(
            buffer=index_of(manifest, name) + 1, access=2 if spec_operand.access == "w" else 1
        )


def _speculative(
    manifest: pb.ExecutionManifest,
    contract: c.ServingContract,
    *,
    width: int = 1,
    draft: int = 0,
    packed: int = 1,
    confidence: int = 0,
) -> None:
    """Makes SPECULATIVE of decode.b1."""
    contract.speculative_widths.append(width)
    graph(contract).operation = c.OPERATION_SPECULATIVE
    graph(contract).confidence_width = confidence
    graph(contract).bindings.append(bind("query_length", "QUERY_LENGTH", "ACTIVE_ROW"))
    program = manifest.programs[DECODE]
    program.inputs.append("query_length")
    put(
        program,
        operation=c.OPERATION_SPECULATIVE,
        token_capacity=width,
        draft_tokens=draft or (1 if confidence == 1 else 0),
        packed_token_capacity=packed,
    )


LAUNCHES: list[Case] = [
    (f"{D}.launches[1].operands[4].buffer", DECODE_B1, lambda x, y: point(x, 1, 4, "scores")),
    (f"{D}.launches[2].operands[3].buffer", DECODE_B1, lambda x, y: point(x, 2, 3, "sampled")),
    (
        f"{D}.launches[2].operands[2].buffer",
        "'x' holds F32, embed takes TILE16_F32",
        lambda x, y: point(x, 2, 2, "x"),
    ),
    (
        f"{D}.launches[2].operands[2].buffer",
        "'table' holds TILE16_F32, embed takes TILE16_BF16",
        lambda x, y: x.programs[DECODE].launches[2].integers.__setitem__(3, 4),
    ),
    (
        f"{D}.launches[3].operands[1].buffer",
        "'x' holds F32, linear takes ACT_Q8",
        lambda x, y: x.programs[DECODE].launches[3].integers.__setitem__(4, 2),
    ),
    (
        f"{D}.launches[4].integers[1]",
        "reads 49 logits, but the vocabulary has 50 tokens",
        lambda x, y: x.programs[DECODE].launches[4].integers.__setitem__(1, 49),
    ),
]

CASES = [*OPERATIONS, *BUFFERS, *BINDINGS, *STORAGE, *EXTENTS, *LAUNCHES]


def refusal(change: Change) -> ContractError:
    manifest, contract = sample_manifest(), sample_contract()
    change(manifest, contract)
    with pytest.raises(ContractError) as raised:
        check_manifest(decode_manifest(manifest), decode(contract))
    return raised.value


def test_the_sample_agrees() -> None:
    check_manifest(decode_manifest(sample_manifest()), decode(sample_contract()))


@pytest.mark.clause("BOOT-6", "BIND-1", "BIND-11")
@pytest.mark.parametrize(
    ("where", "named", "change"), CASES, ids=[f"{i}-{w}" for i, (w, _, _) in enumerate(CASES)]
)
def test_contract_and_manifest_must_agree(where: str, named: str, change: Change) -> None:
    error = refusal(change)
    assert error.where == where
    assert named in str(error)


@pytest.mark.clause("BOOT-6")
def test_a_disagreement_fails_start_up_before_memory_is_taken() -> None:
    manifest, contract = sample_manifest(), sample_contract()
    contract.max_active = 5
    device = NullDevice()
    with pytest.raises(ContractError, match=r"max_active: is 5, but the DECODE programs take 4"):
        ModelRuntime.from_parts(
            decode(contract),
            manifest,
            sample_weights(),
            options=DeviceOptions(threads=1),
            capacities=Capacities(request_slots=1),
            device=device,
        )
    with pytest.raises(IndexError):
        device.view(0, 0)
