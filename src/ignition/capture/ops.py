"""The op layer of a model: one function an operation, over activations and matrices.

A function allocates its outputs as workspace of the program and records one launch. Which format
a projection reads is decided in `input_format` and nowhere else; producers write that format
directly. Attention is in `attention_ops`, what admits, samples and commits requests in
`request_ops`. Recipes are the callers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from helios.errors import ContractError
from helios.kernels.catalogue import ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.capture.handles import (
    CODE_ROW_PACKINGS,
    Activation,
    BufferHandle,
    Matrix,
    Rows,
)
from ignition.capture.program import ProgramRecorder

# What bf16 weights read inside the layers; the measured divergence is in docs/kernels.md.
BF16_WEIGHTS_READ: Final = ActivationFormat.BF16


# Width from which rows are weighed in blocks of 64 columns instead of 16.
WIDE: Final = 2048
# Rows below and from that width up to which they are weighed where they are made.
MOST_NARROW: Final = 128
MOST_WIDE: Final = 32


@dataclass(frozen=True)
class WeighedRows:
    """Rows times a norm's weight, to be multiplied before they are normalised: `squares` f32 has
    `blocks` sums of each row's squares."""

    rows: Activation
    squares: BufferHandle
    blocks: int
    epsilon: float


class Role(Enum):
    """What a projection is for; how far an error in its input spreads depends on it."""

    QKV = "qkv"
    INNER = "inner"  # attention output, gate and up, down
    HEAD = "head"


def input_format(matrix: Matrix, role: Role) -> ActivationFormat:
    """The format that a projection reads, by how its weights are kept and what it is for."""
    if matrix.packing in (pb.PACKING_ROWS_BF16, *CODE_ROW_PACKINGS):
        return ActivationFormat.BF16  # what tensor cores multiply
    if matrix.packing == pb.PACKING_TILE16_Q4_PAIRS:
        return ActivationFormat.Q8_PAIRS
    if matrix.is_quantised:
        return ActivationFormat.Q8 if role is Role.INNER else ActivationFormat.Q16
    if matrix.packing == pb.PACKING_TILE16_BF16 and role is not Role.HEAD:
        return BF16_WEIGHTS_READ
    return ActivationFormat.F32


def embed(
    program: ProgramRecorder, role: str, rows: Rows, tokens: BufferHandle, table: Matrix
) -> Activation:
    """The rows of the embedding table that `tokens` (i32) name, f32."""
    out = program.activation(role, rows.capacity, table.width)
    program.launch(
        "embed",
        {"rows": rows.count, "tokens": tokens, "table": table.buffer, "out": out.buffer},
        {
            "capacity": rows.capacity,
            "vocab": table.outputs,
            "width": table.width,
            "packing": table.packing,
        },
        {"scale": 1.0},
    )
    return out


def rms_norm(
    program: ProgramRecorder,
    role: str,
    rows: Rows,
    x: Activation,
    weight: BufferHandle,
    epsilon: float,
    form: ActivationFormat,
) -> Activation:
    """Normalised rows in `form`."""
    out = program.activation(role, rows.capacity, x.width, form)
    program.launch(
        "rms_norm",
        {"rows": rows.count, "x": x.buffer, "weight": weight, "out": out.buffer},
        {"capacity": rows.capacity, "width": x.width, "format": form},
        {"epsilon": epsilon},
    )
    return out


def normed(
    program: ProgramRecorder,
    role: str,
    rows: Rows,
    x: Activation,
    weight: BufferHandle,
    epsilon: float,
    matrix: Matrix,
    use: Role,
) -> Activation | WeighedRows:
    """Rows normalised for a projection by `matrix`: as they are multiplied, or, where the product
    is scaled instead, weighed."""
    form = input_format(matrix, use)
    if matrix.packing != pb.PACKING_ROWS_BF16:
        return rms_norm(program, role, rows, x, weight, epsilon, form)
    out = program.activation(role, rows.capacity, x.width, form)
    block, blocks = row_blocks(rows.capacity, x.width)
    squares = program.activation(f"{role}_squares", rows.capacity, blocks)
    program.launch(
        "weigh",
        {"rows": rows.count, "x": x.buffer, "weight": weight, "out": out.buffer}
        | {"squares": squares.buffer},
        {"capacity": rows.capacity, "width": x.width, "format": form}
        | {"block": block, "blocks": blocks},
    )
    return WeighedRows(out, squares.buffer, blocks, epsilon)


def row_blocks(capacity: int, width: int) -> tuple[int, int]:
    """Columns of a weighed row's blocks, and its sums of squares. Few rows are weighed where they
    are made, by tiles of a block or some, each with its sum; many by themselves, into one."""
    block = 16 if width < WIDE else 64
    few = capacity <= (MOST_NARROW if width < WIDE else MOST_WIDE)
    return block, -(-width // block) if few else 1


def linear(
    program: ProgramRecorder,
    role: str,
    rows: Rows,
    x: Activation | WeighedRows,
    weight: Matrix,
    bias: BufferHandle | None = None,
) -> Activation:
    """x Wᵀ (+ bias), f32."""
    out = program.activation(role, rows.capacity, weight.outputs)
    linear_into(program, rows, x, weight, out.buffer, bias)
    return out


def linear_into(
    program: ProgramRecorder,
    rows: Rows,
    x: Activation | WeighedRows,
    weight: Matrix,
    out: BufferHandle,
    bias: BufferHandle | None = None,
) -> None:
    """x Wᵀ (+ bias) into a given f32 buffer."""
    if isinstance(x, Activation):
        _linear(program, rows, x, weight, out, bias, accumulate=False)
        return
    _check_width("linear_weighed", x.rows, weight)
    integers = {"outputs": weight.outputs, "format": x.rows.format}
    operands = {"out": out} | ({} if bias is None else {"bias": bias})
    _weighed(program, "linear_weighed", rows, x, weight, operands, integers)


def _weighed(
    program: ProgramRecorder,
    kernel: str,
    rows: Rows,
    x: WeighedRows,
    weight: Matrix,
    operands: dict[str, BufferHandle],
    integers: dict[str, int],
) -> None:
    """A projection of weighed rows; `operands` and `integers` are what it has beside them."""
    program.launch(
        kernel,
        {"rows": rows.count, "x": x.rows.buffer, "squares": x.squares, "weight": weight.buffer}
        | operands,
        {"capacity": rows.capacity, "width": weight.width, "packing": weight.packing}
        | {"blocks": x.blocks}
        | integers,
        {"epsilon": x.epsilon},
    )


def linear_add(
    program: ProgramRecorder,
    rows: Rows,
    x: Activation,
    weight: Matrix,
    residual: Activation,
    bias: BufferHandle | None = None,
) -> None:
    """residual += x Wᵀ (+ bias)."""
    _linear(program, rows, x, weight, residual.buffer, bias, accumulate=True)


def _linear(
    program: ProgramRecorder,
    rows: Rows,
    x: Activation,
    weight: Matrix,
    out: BufferHandle,
    bias: BufferHandle | None,
    *,
    accumulate: bool,
) -> None:
    _check_width("linear", x, weight)
    operands = {"rows": rows.count, "x": x.buffer, "weight": weight.buffer, "out": out}
    if bias is not None:
        operands["bias"] = bias
    kernel = "linear"
    if program.tuning is not None:
        kernel = "linear_tuned"
        operands["tuning"] = program.tuning.linear(rows.capacity, x, weight)
    program.launch(
        kernel,
        operands,
        {
            "capacity": rows.capacity,
            "width": weight.width,
            "outputs": weight.outputs,
            "packing": weight.packing,
            "format": x.format,
            "accumulate": int(accumulate),
        },
        overwrites=() if accumulate else ("out",),
    )


def linear_silu_mul(
    program: ProgramRecorder,
    role: str,
    rows: Rows,
    x: Activation | WeighedRows,
    gate_up: Matrix,
    form: ActivationFormat,
) -> Activation:
    """silu(gate) · up in `form`; `gate_up` alternates gate and up rows as its layout has it."""
    outputs = gate_up.outputs // 2
    out = program.activation(role, rows.capacity, outputs, form)
    if isinstance(x, WeighedRows):
        _check_width("linear_silu_mul_weighed", x.rows, gate_up)
        integers = {"outputs": outputs, "format": x.rows.format, "out_format": form}
        kernel = "linear_silu_mul_weighed"
        _weighed(program, kernel, rows, x, gate_up, {"out": out.buffer}, integers)
        return out
    _check_width("linear_silu_mul", x, gate_up)
    operands = {"rows": rows.count, "x": x.buffer, "weight": gate_up.buffer, "out": out.buffer}
    kernel = "linear_silu_mul"
    if program.tuning is not None:
        kernel = "linear_silu_mul_tuned"
        operands["tuning"] = program.tuning.linear_silu_mul(rows.capacity, x, gate_up, form)
    program.launch(
        kernel,
        operands,
        {
            "capacity": rows.capacity,
            "width": gate_up.width,
            "outputs": outputs,
            "packing": gate_up.packing,
            "format": x.format,
            "out_format": form,
        },
    )
    return out


def _check_width(kernel: str, x: Activation, weight: Matrix) -> None:
    if x.width != weight.width:
        raise ContractError(
            f"rows of {x.width} don't fit weights of width {weight.width}",
            where=f"{kernel} with {weight.buffer.name}",
        )
