"""Launches against the buffers that they name: element types, packings, and the vocabulary.

Extents are checked when a device takes a program (by the native library, or `launch_extents`), in
bytes; what these mean is checked here. Called by `manifest_checks`, for serving programs and
producers alike.
"""

from __future__ import annotations

from typing import Final

from helios.contract.model import PreparedContract
from helios.kernels.catalogue import (
    MASK_WORD_BITS,
    REQUEST_STATE_NBYTES,
    SAMPLING_ROW_NBYTES,
    ActivationFormat,
)
from helios.kernels.operand_types import DTYPE, FORMAT, OPERAND_TYPES, OUT_FORMAT, PACKING
from helios.runtime.checks.places import Place
from helios.runtime.manifest import (
    Buffer,
    DType,
    Launch,
    LeadingCount,
    Manifest,
    Packing,
    Program,
)

_FORMAT_TYPES: Final = {
    int(ActivationFormat.F32): DType.F32,
    int(ActivationFormat.BF16): DType.BF16,
    int(ActivationFormat.Q8): DType.ACT_Q8,
    int(ActivationFormat.Q16): DType.ACT_Q16,
    int(ActivationFormat.Q8_PAIRS): DType.ACT_Q8_PAIRS,
}
_PACKINGS: Final = frozenset(map(int, Packing))
_DTYPES: Final = frozenset(map(int, DType))
_READS_VOCABULARY: Final = frozenset(
    (
        "sample",
        "score",
        "sample_processed",
        "initialize_sampling",
        "count_sampled",
        "score_ranked",
    )
)


# Kernels that find a slot's rows in tables by their width, which the native library can't know.
_WALKS_SLOT_ROWS: Final = frozenset(("sample_processed", "initialize_sampling", "count_sampled"))

# What an operand's buffer must hold: a layout, and for plain ones a type. None: anything goes,
# because the device refuses the attribute that should say.
_Expected = tuple[Packing, DType | None] | None


def check_launches(
    program: Program, at: Place, manifest: Manifest, contract: PreparedContract
) -> None:
    """Every operand of every launch. Layers repeat launches, so what each takes is found once."""
    expected: dict[tuple[str, tuple[int, ...]], tuple[_Expected, ...]] = {}
    for number, launch in enumerate(program.launches):
        key = (launch.kernel.name, launch.integers)
        taken = expected.get(key)
        if taken is None:
            types = OPERAND_TYPES[launch.kernel.name]
            taken = tuple(_expected(types[o.name], launch) for o in launch.kernel.operands)
            expected[key] = taken
            if launch.kernel.name in _READS_VOCABULARY:
                _check_vocabulary(launch, at.within(f"launches[{number}]"), contract)
            if launch.kernel.name in _WALKS_SLOT_ROWS:
                _check_slot_rows(launch, at, number, manifest)
        for position, (operand, wanted) in enumerate(zip(launch.operands, taken, strict=True)):
            if operand is None or wanted is None:
                continue
            buffer = manifest.buffers[operand.buffer]
            packing, dtype = wanted
            if buffer.packing is not packing or (dtype is not None and buffer.dtype is not dtype):
                at.refuse(
                    f"launches[{number}].operands[{position}].buffer",
                    f"{buffer.name!r} holds {_held(buffer)}, {launch.kernel.name} takes"
                    f" {packing.name if dtype is None else dtype.name}",
                )


def _expected(kind: str, launch: Launch) -> _Expected:
    if kind == PACKING:
        value = _attribute(launch, PACKING)
        return (Packing(value), None) if value in _PACKINGS else None
    if kind == DTYPE:
        value = _attribute(launch, DTYPE)
        return (Packing.PLAIN, DType(value)) if value in _DTYPES else None
    if kind in (FORMAT, OUT_FORMAT):
        dtype = _FORMAT_TYPES.get(_attribute(launch, kind))
        return None if dtype is None else (Packing.PLAIN, dtype)
    return Packing.PLAIN, DType[kind.upper()]


def _held(buffer: Buffer) -> str:
    return buffer.dtype.name if buffer.packing is Packing.PLAIN else buffer.packing.name


def _check_vocabulary(launch: Launch, at: Place, contract: PreparedContract) -> None:
    """What is sampled or scored is in the vocabulary, all of it."""
    position = launch.kernel.integers.index("vocab")
    sampled = contract.model.vocabulary.sampled_tokens
    if launch.integers[position] != sampled:
        at.refuse(
            f"integers[{position}]",
            f"reads {launch.integers[position]} logits, but the vocabulary has {sampled} tokens",
        )


def _check_slot_rows(launch: Launch, at: Place, number: int, manifest: Manifest) -> None:
    """Tables of request slots have rows as wide as the kernel takes them for."""
    vocab = _attribute(launch, "vocab")
    widths = {
        "state": REQUEST_STATE_NBYTES,
        "sampling": SAMPLING_ROW_NBYTES,
        "token_counts": 4 * vocab,
        "output_counts": 4 * vocab,
        "token_mask": 4 * -(-vocab // MASK_WORD_BITS),
    }
    for position, spec in enumerate(launch.kernel.operands):
        operand = launch.operands[position]
        if spec.name not in widths or operand is None:
            continue
        buffer, width = manifest.buffers[operand.buffer], widths[spec.name]
        slots = buffer.leading is LeadingCount.REQUEST_SLOTS
        if not slots or buffer.nbytes != width or operand.byte_offset:
            at.refuse(
                f"launches[{number}].operands[{position}].buffer",
                f"{buffer.name!r} isn't a row of {width} bytes for each request slot, as"
                f" {launch.kernel.name} takes it",
            )


def _attribute(launch: Launch, name: str) -> int:
    return launch.integers[launch.kernel.integers.index(name)]
