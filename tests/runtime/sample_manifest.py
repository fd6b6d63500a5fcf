"""A small complete execution manifest for the sample contract, with weights that make it run.

The model has no attention: embedding, head, sampling, commit. It exercises every input, the page
table and the completion record on real devices, in microseconds.
"""

from __future__ import annotations

import numpy as np

from helios.kernels.catalogue import BY_NAME
from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from tests.contract.sample import PAGE_TOKENS, SLOTS, VOCABULARY, sample_accesses

LANES = 4
TOKENS = 16
WIDTH = 8
TABLE_PAGES = 6
STRIDE = 64
WEIGHT_NBYTES = 64 * WIDTH * 4

_ACCESS = {
    "r": contract.ACCESS_MODE_READ,
    "w": contract.ACCESS_MODE_WRITE,
    "rw": contract.ACCESS_MODE_READ_WRITE,
}
_NBYTES = {"U8": 1, "I32": 4, "U32": 4, "F16": 2, "F32": 4}
_INPUTS = [
    ("slot", "I32", LANES),
    ("generation", "I32", LANES),
    ("live_rows", "I32", 1),
    ("live_tokens", "I32", 1),
    ("query_length", "I32", LANES),
    ("sample", "I32", LANES),
    ("tokens", "I32", TOKENS),
    ("positions", "I32", TOKENS),
    ("token_slot", "I32", TOKENS),
    ("consumed", "I32", LANES),
    ("emitted", "I32", LANES),
    ("output_limit", "I32", LANES),
    ("temperature", "F32", LANES),
    ("top_k", "I32", LANES),
    ("top_p", "F32", LANES),
    ("min_p", "F32", LANES),
]


class _Manifest:
    def __init__(self) -> None:
        self.message = pb.ExecutionManifest(abi="sample", target="cpu")
        self._index: dict[str, int] = {}
        self._kernels: dict[str, int] = {}

    def buffer(
        self, name: str, kind: str, dtype: str, *shape: int, leading: str = "FIXED"
    ) -> pb.Buffer:
        count = int(np.prod(shape))
        message = self.message.buffers.add(
            name=name,
            buffer_class=pb.BufferClass.Value(f"BUFFER_CLASS_{kind}"),
            dtype=pb.DType.Value(f"DTYPE_{dtype}"),
            packing=pb.PACKING_PLAIN,
            leading=pb.LeadingCount.Value(f"LEADING_COUNT_{leading}"),
            shape=shape,
            nbytes=count * _NBYTES[dtype],
        )
        self._index[name] = len(self._index)
        return message

    def workspace(self, name: str, dtype: str, *shape: int) -> None:
        message = self.buffer(name, "WORKSPACE", dtype, *shape)
        message.offset = self.message.workspace_nbytes
        self.message.workspace_nbytes += -(-message.nbytes // 64) * 64

    def launch(self, program: pb.Program, kernel: str, operands: str, *attributes: float) -> None:
        """`operands` names a buffer for each operand, "-" for an absent one."""
        spec = BY_NAME[kernel]
        if kernel not in self._kernels:
            self._kernels[kernel] = len(self._kernels)
            self.message.kernels.add(
                name=kernel,
                operands=[operand.name for operand in spec.operands],
                integers=spec.integers,
                floats=spec.floats,
            )
        launch = program.launches.add(kernel=self._kernels[kernel])
        for operand, name in zip(spec.operands, operands.split(), strict=True):
            if name == "-":
                launch.operands.add()
            else:
                launch.operands.add(buffer=self._index[name] + 1, access=_ACCESS[operand.access])
        integers = attributes[: len(spec.integers)]
        launch.integers.extend(int(value) for value in integers)
        launch.floats.extend(attributes[len(spec.integers) :])

    def program(self, name: str, operation: str, batch: int, packed: int) -> pb.Program:
        return self.message.programs.add(
            name=name,
            operation=contract.Operation.Value(f"OPERATION_{operation}"),
            batch_capacity=batch,
            token_capacity=1,
            packed_token_capacity=packed,
            accesses=sample_accesses(operation),
        )


def sample_manifest() -> pb.ExecutionManifest:
    """A fresh valid message."""
    m = _Manifest()
    for name, dtype, rows in _INPUTS:
        m.buffer(f"in.{name}", "INPUT", dtype, rows)
        m.message.destinations.add(name=name, staged_buffer=f"in.{name}")
    for name, dtype, columns in (("seed", "U32", 2), ("eos_ids", "I32", 16)):
        m.buffer(f"in.{name}", "INPUT", dtype, LANES, columns)
        m.message.destinations.add(name=name, staged_buffer=f"in.{name}")
    for part, entries in (("count", 1), ("index", LANES * TABLE_PAGES), ("value", 24)):
        m.buffer(f"in.page_table.{part}", "INPUT", "I32", entries)
    m.message.destinations.add(
        name="page_table",
        delta=pb.DeltaTransport(
            target_buffer="page_table",
            count_buffer="in.page_table.count",
            index_buffer="in.page_table.index",
            value_buffer="in.page_table.value",
        ),
    )
    m.buffer("request_state", "STATE", "U8", 128, leading="REQUEST_SLOTS")
    m.buffer("page_table", "STATE", "I32", TABLE_PAGES, leading="REQUEST_SLOTS")
    for plane in ("cache.k.0", "cache.v.0"):
        m.buffer(plane, "CACHE", "F16", 1, 4, PAGE_TOKENS, leading="CACHE_PAGES")
    table = m.buffer("table", "WEIGHT", "F32", VOCABULARY, WIDTH)
    table.packing = pb.PACKING_TILE16_F32
    table.nbytes = WEIGHT_NBYTES
    table.resource = "weights"
    m.buffer("completion.lanes", "COMPLETION", "I32", LANES, 12)
    m.buffer("completion.tokens", "COMPLETION", "I32", LANES, 1)
    m.buffer("completion.logprobs", "COMPLETION", "F32", LANES, 1)
    m.message.completions.add(
        name="tokens",
        lanes="completion.lanes",
        tokens="completion.tokens",
        logprobs="completion.logprobs",
    )
    m.workspace("x", "F32", TOKENS, WIDTH)
    m.workspace("last", "F32", LANES, WIDTH)
    m.workspace("logits", "F32", LANES, STRIDE)
    m.workspace("sampled", "I32", LANES)
    m.workspace("scores", "F32", LANES)
    m.workspace("pending", "I32", LANES)
    m.workspace("pending_position", "I32", LANES)
    m.workspace("selected_rows", "I32", 1)
    m.workspace("selected_lane", "I32", LANES)
    _initialize(m)
    for packed in (8, 16):
        _prefill(m, packed)
    for batch in (1, 2, 4):
        _decode(m, batch)
    return m.message


_SCATTER = "in.page_table.count in.page_table.index in.page_table.value page_table"


def _initialize(m: _Manifest) -> None:
    program = m.program("initialize.b4", "INITIALIZE", LANES, 0)
    names = (
        "slot generation consumed emitted output_limit seed temperature top_k top_p min_p eos_ids"
    )
    operands = " ".join(f"in.{name}" for name in names.split())
    m.launch(program, "initialize_requests", f"in.live_rows {operands} request_state", LANES)
    program.inputs.extend(["live_rows", *names.split()])


def _prefill(m: _Manifest, packed: int) -> None:
    program = m.program(f"prefill.p{packed}", "PREFILL", LANES, packed)
    packing = pb.PACKING_TILE16_F32
    m.launch(program, "scatter_i32", _SCATTER, LANES * TABLE_PAGES)
    m.launch(
        program,
        "embed",
        "in.live_tokens in.tokens table x",
        packed,
        VOCABULARY,
        WIDTH,
        packing,
        1.0,
    )
    m.launch(
        program,
        "select_last",
        "in.live_rows in.query_length in.sample x selected_rows selected_lane last",
        LANES,
        packed,
        WIDTH,
    )
    _head(m, program, "selected_rows", "last", LANES)
    m.launch(
        program,
        "sample",
        "selected_rows selected_lane in.slot in.query_length request_state logits sampled scores",
        LANES,
        VOCABULARY,
        VOCABULARY,
    )
    m.launch(
        program,
        "commit",
        "in.live_rows in.slot in.generation in.query_length in.sample sampled scores"
        " request_state completion.lanes completion.tokens completion.logprobs",
        LANES,
    )
    program.completion = "tokens"
    program.inputs.extend(
        [
            "page_table",
            "live_rows",
            "live_tokens",
            "slot",
            "generation",
            "query_length",
            "sample",
            "tokens",
            "positions",
            "token_slot",
        ]
    )


def _decode(m: _Manifest, batch: int) -> None:
    program = m.program(f"decode.b{batch}", "DECODE", batch, batch)
    m.launch(program, "scatter_i32", _SCATTER, LANES * TABLE_PAGES)
    m.launch(
        program,
        "load_pending",
        "in.live_rows in.slot in.generation request_state pending pending_position",
        batch,
    )
    m.launch(
        program,
        "embed",
        "in.live_rows pending table x",
        batch,
        VOCABULARY,
        WIDTH,
        pb.PACKING_TILE16_F32,
        1.0,
    )
    _head(m, program, "in.live_rows", "x", batch)
    m.launch(
        program,
        "sample",
        "in.live_rows - in.slot - request_state logits sampled scores",
        batch,
        VOCABULARY,
        VOCABULARY,
    )
    m.launch(
        program,
        "commit",
        "in.live_rows in.slot in.generation - - sampled scores request_state completion.lanes"
        " completion.tokens completion.logprobs",
        batch,
    )
    program.completion = "tokens"
    program.inputs.extend(["page_table", "live_rows", "slot", "generation"])


def _head(m: _Manifest, program: pb.Program, rows: str, x: str, capacity: int) -> None:
    m.launch(
        program,
        "linear",
        f"{rows} {x} table - logits",
        capacity,
        WIDTH,
        VOCABULARY,
        pb.PACKING_TILE16_F32,
        0,
        0,
    )


def sample_weights() -> dict[str, bytes]:
    """TILE16_F32 [50, 8]: deterministic, padded rows zero."""
    matrix = np.random.default_rng(7).standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    padded = np.zeros((64, WIDTH), np.float32)
    padded[:VOCABULARY] = matrix
    return {"weights": padded.reshape(4, 16, WIDTH).transpose(0, 2, 1).tobytes()}


assert SLOTS == LANES
