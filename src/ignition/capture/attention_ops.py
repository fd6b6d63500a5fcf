"""The op layer of attention: queries, keys and values of a row, the cache that they go to.

As in `ops`, a function allocates its outputs as workspace and records one launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.kernels.catalogue import ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.capture.handles import Activation, BufferHandle, RowBinding, Rows
from ignition.capture.program import ProgramRecorder


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
) -> None:
    """Normalises (where given) and rotates queries in place, stores keys and values."""
    operands = {
        **_head_operands(at, qkv, table, planes),
        "inverse_frequency": rotary.inverse_frequency,
    }
    if q_norm is not None:
        operands["q_norm"] = q_norm
    if k_norm is not None:
        operands["k_norm"] = k_norm
    program.launch(
        f"rope_and_cache{planes.kernels}",
        operands,
        _head_integers(at.rows, heads, table),
        {"epsilon": epsilon, "attention_factor": rotary.attention_factor},
    )


def attention(
    program: ProgramRecorder,
    role: str,
    at: RowBinding,
    qkv: Activation,
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
    program.launch(
        f"attention{planes.kernels}",
        {**_head_operands(at, qkv, table, planes), "out": out.buffer},
        {**_head_integers(at.rows, heads, table), "window": window, "format": form},
        {"scale": scale},
    )
    return out


def _head_operands(
    at: RowBinding, qkv: Activation, table: PageTable, planes: Planes
) -> dict[str, BufferHandle]:
    return {
        "rows": at.rows.count,
        "qkv": qkv.buffer,
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
