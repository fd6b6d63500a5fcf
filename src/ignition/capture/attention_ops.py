"""The op layer of attention: queries, keys and values of a row, the cache that they go to.

As in `ops`, a function allocates its outputs as workspace and records one launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.kernels.catalogue import ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.capture.handles import Activation, BufferHandle, RowBinding, Rows
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import Recorder


@dataclass(frozen=True)
class PageTable:
    """`i32 [request_slots, table_pages]`, entries of `page_tokens` tokens."""

    buffer: BufferHandle
    page_tokens: int
    table_pages: int


@dataclass(frozen=True)
class Heads:
    """Attention geometry: numbers of heads and elements a head."""

    query: int
    key_value: int
    width: int

    @property
    def qkv_width(self) -> int:
        """Width of a row of the joint projection."""
        return (self.query + 2 * self.key_value) * self.width


@dataclass(frozen=True)
class Planes:
    """One layer's cached keys and values, f16, or bf16 in pairs."""

    keys: BufferHandle
    values: BufferHandle

    @property
    def kernels(self) -> str:
        """What the names of the kernels end with that know these planes."""
        return "_bf16" if self.keys.dtype == pb.DTYPE_BF16 else ""


@dataclass(frozen=True)
class RotaryEmbedding:
    """`inverse_frequency` f32[head width / 2], any scaling folded in."""

    inverse_frequency: BufferHandle
    attention_factor: float


def rope_and_cache(
    program: ProgramRecorder,
    at: RowBinding,
    qkv: Activation,
    heads: Heads,
    table: PageTable,
    planes: Planes,
    rotary: RotaryEmbedding,
    *,
    q_norm: BufferHandle | None = None,
    k_norm: BufferHandle | None = None,
    epsilon: float,
) -> BufferHandle:
    """Normalises (where given) and rotates queries, stores keys and values; returns the queries as
    `attention` takes them."""
    operands = {
        **_row_operands(at, table, planes),
        "qkv": qkv.buffer,
        "inverse_frequency": rotary.inverse_frequency,
    }
    if q_norm is not None:
        operands["q_norm"] = q_norm
    if k_norm is not None:
        operands["k_norm"] = k_norm
    kernel, queries = f"rope_and_cache{planes.kernels}", qkv.buffer
    if program.target.queries_apart:
        kernel = "rope_and_cache_f16"
        shape = (at.rows.capacity, heads.query * heads.width)
        queries = program.workspace("queries", pb.DTYPE_F16, shape)
        operands["queries"] = queries
    program.launch(
        kernel,
        operands,
        _head_integers(at.rows, heads, table),
        {"epsilon": epsilon, "attention_factor": rotary.attention_factor},
    )
    return queries


def attention(
    program: ProgramRecorder,
    role: str,
    at: RowBinding,
    queries: BufferHandle,
    heads: Heads,
    table: PageTable,
    planes: Planes,
    *,
    window: int,
    scale: float,
    form: ActivationFormat,
) -> Activation:
    """Attention over each row's cached context, in `form`; `window` 0 sees all of it."""
    out = program.activation(role, at.rows.capacity, heads.query * heads.width, form)
    operands = {**_row_operands(at, table, planes), "out": out.buffer}
    integers = {**_head_integers(at.rows, heads, table), "window": window, "format": form}
    kernel = f"attention{planes.kernels}"
    if program.target.queries_apart:
        kernel = "attention_f16"
        operands["queries"] = queries
        integers["lane_capacity"] = 0
        if at.lengths is not None:
            operands["lanes"] = at.lengths.lanes.count
            operands["query_length"] = at.lengths.query_length
            integers["lane_capacity"] = at.lengths.lanes.capacity
    else:
        operands["qkv"] = queries
    program.launch(kernel, operands, integers, {"scale": scale})
    return out


def declare_planes(recorder: Recorder, layer: int, heads: Heads, *, paired: bool) -> Planes:
    """A layer's planes, as the target's attention reads them; `paired`: bf16 in pairs, of the same
    extents, where the target has attention in bf16."""
    tokens, width = recorder.target.page_tokens, heads.width
    # Where attention reads one element of all of a page's keys at a time, they lie transposed.
    keys = (tokens, width) if recorder.target.queries_apart else (width, tokens)

    def plane(kind: str, *row: int) -> BufferHandle:
        return recorder.buffers.plain(
            f"cache.{kind}.{layer}",
            pb.BUFFER_CLASS_CACHE,
            pb.DTYPE_BF16 if paired and not recorder.target.queries_apart else pb.DTYPE_F16,
            (heads.key_value, *row),
            leading=pb.LEADING_COUNT_CACHE_PAGES,
        )

    return Planes(keys=plane("k", *keys), values=plane("v", tokens, width))


def _row_operands(at: RowBinding, table: PageTable, planes: Planes) -> dict[str, BufferHandle]:
    return {
        "rows": at.rows.count,
        "positions": at.positions,
        "slot": at.slot,
        "page_table": table.buffer,
        "k_plane": planes.keys,
        "v_plane": planes.values,
    }


def _head_integers(rows: Rows, heads: Heads, table: PageTable) -> dict[str, int]:
    return {
        "capacity": rows.capacity,
        "q_heads": heads.query,
        "kv_heads": heads.key_value,
        "head_dim": heads.width,
        "page_tokens": table.page_tokens,
        "table_pages": table.table_pages,
    }
