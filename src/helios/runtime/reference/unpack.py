"""Packed weight matrices as float32: the inverse of the layouts of `docs/kernels.md`.

The reference kernels read every matrix through `PackedMatrix`, which unpacks once and keeps the
result. Packing itself is Ignition's. Nothing here rounds twice: a matrix is what the stored
elements or blocks say, in float32.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.errors import ExecutionError
from helios.kernels import e4m3
from helios.kernels.catalogue import (
    CODE_ROW_MULTIPLE,
    Q8_BLOCK,
    Q8_PAIR,
    ROWS_Q8_BLOCK,
    TILE_OUTPUTS,
)
from helios.runtime.manifest import DType, Packing, row_scales
from helios.runtime.reference.arrays import F32, U8

_HALF: Final = Q8_BLOCK // 2
_PAIR_NBYTES: Final = 512 + 64 + 64
# The outputs of a tile in the order of a pair's two vectors of codes.
_CODE_ORDER: Final = (0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
_ELEMENT_TYPES: Final[dict[int, type[np.generic]]] = {
    DType.F32: np.float32,
    DType.F16: np.float16,
    DType.BF16: np.uint16,
}


class PackedMatrix:
    """A weight operand's bytes and the float32 matrices already read from them."""

    def __init__(self, name: str, raw: U8, dtype: int) -> None:
        """`raw` starts at the operand's offset; `dtype` is the buffer's, used where PLAIN."""
        self._name = name
        self._raw = raw
        self._dtype = dtype
        self._matrices: dict[tuple[int, int, int], F32] = {}

    def matrix(self, packing: int, outputs: int, width: int) -> F32:
        """`f32 [outputs, width]`, unpacked at the first call. Raises ExecutionError where the
        bytes are too few or the packing is unknown."""
        key = (packing, outputs, width)
        if key not in self._matrices:
            try:
                self._matrices[key] = unpack(self._raw, packing, outputs, width, self._dtype)
            except ValueError as error:
                raise ExecutionError(
                    str(error),
                    where=f"weight {self._name}",
                    remedy="Prepare the core again",
                ) from error
        return self._matrices[key]


def unpack(raw: U8, packing: int, outputs: int, width: int, dtype: int = DType.F32) -> F32:
    """`f32 [outputs, width]` of a packed matrix. `dtype` matters to PLAIN only. Raises ValueError
    where `raw` is too short, the width doesn't suit the packing, or the packing is unknown."""
    if packing == Packing.PLAIN:
        if dtype not in _ELEMENT_TYPES:
            raise ValueError(f"a plain matrix of dtype {dtype} has no float32 form")
        (elements,) = _planes(raw, [((outputs, width), _ELEMENT_TYPES[dtype])])
        return _floats(elements)
    if packing == Packing.ROWS_BF16:
        (elements,) = _planes(raw, [((outputs, width), np.uint16)])
        return _floats(elements)
    if packing in (Packing.ROWS_Q8, Packing.ROWS_FP8):
        _check_multiple(width, CODE_ROW_MULTIPLE)
        return _scaled_rows(raw, packing, outputs, width)
    tiles = -(-outputs // TILE_OUTPUTS)
    if packing in (Packing.TILE16_F32, Packing.TILE16_F16):
        element = np.float32 if packing == Packing.TILE16_F32 else np.float16
        (values,) = _planes(raw, [((tiles, width, TILE_OUTPUTS), element)])
        return _matrix(_floats(values.transpose(0, 2, 1)), outputs, width)
    if packing == Packing.TILE16_BF16:
        _check_multiple(width, 2)
        # A pair of neighbours moves as one 32-bit word.
        (pairs,) = _planes(raw, [((tiles, width // 2, TILE_OUTPUTS), np.uint32)])
        ordered = np.ascontiguousarray(pairs.transpose(0, 2, 1)).view(np.uint16)
        return _matrix(_floats(ordered), outputs, width)
    if packing == Packing.TILE16_Q4_PAIRS:
        _check_multiple(width, Q8_PAIR)
        return _matrix(_pairs(raw, tiles, width // Q8_PAIR), outputs, width)
    _check_multiple(width, Q8_BLOCK)
    return _matrix(_blocks(raw, packing, tiles, width // Q8_BLOCK), outputs, width)


def _scaled_rows(raw: U8, packing: int, outputs: int, width: int) -> F32:
    """Rows of codes times their scales, which lie one block of all rows after the other."""
    element = np.int8 if packing == Packing.ROWS_Q8 else np.uint8
    blocks = row_scales(packing, width)
    planes: list[tuple[tuple[int, ...], type[np.generic]]] = [
        ((outputs, width), element),
        ((blocks, outputs), np.float32),
    ]
    codes, scales = _planes(raw, planes)
    values = codes.astype(np.float32) if packing == Packing.ROWS_Q8 else e4m3.VALUES[codes]
    by_input = scales.T.repeat(ROWS_Q8_BLOCK if blocks > 1 else width, axis=1)[:, :width]
    product: F32 = by_input * values
    return product


def _blocks(raw: U8, packing: int, tiles: int, blocks: int) -> F32:
    """A block-quantised matrix as `f32 [tiles, 16, blocks, 32]`."""
    # The innermost four codes of a plane are neighbours in k: they move as one 32-bit word.
    bytes_of_32 = ((tiles, blocks, 8, TILE_OUTPUTS), np.uint32)
    nibbles_of_32 = ((tiles, blocks, 4, TILE_OUTPUTS), np.uint32)
    scale = ((tiles, blocks, TILE_OUTPUTS), np.float16)
    if packing == Packing.TILE16_Q8_0:
        q, d = _planes(raw, [bytes_of_32, scale])
        return _by_output(d)[..., None] * (_codes(q) - np.float32(128))
    if packing == Packing.TILE16_Q4_0:
        q, d = _planes(raw, [nibbles_of_32, scale])
        return _by_output(d)[..., None] * (_nibbles(q) - np.float32(8))
    if packing == Packing.TILE16_Q4_1:
        q, d, m = _planes(raw, [nibbles_of_32, scale, scale])
        return _by_output(d)[..., None] * _nibbles(q) + _by_output(m)[..., None]
    if packing == Packing.TILE16_Q6_K:
        q, s, d = _planes(
            raw,
            [bytes_of_32, ((tiles, blocks, 2, TILE_OUTPUTS), np.int8), scale],
        )
        halves = s.transpose(0, 3, 1, 2).astype(np.float32) * _by_output(d)[..., None]
        return halves.repeat(_HALF, axis=-1) * (_codes(q) - np.float32(32))
    raise ValueError(f"packing {packing} is unknown")


def _pairs(raw: U8, tiles: int, pairs: int) -> F32:
    """A matrix whose blocks lie in pairs as `f32 [tiles, 16, pairs, 2, 32]`."""
    records, units, flags = _planes(
        raw,
        [
            ((tiles, pairs, _PAIR_NBYTES), np.uint8),
            ((tiles, TILE_OUTPUTS, 1, 1, 1), np.float32),
            ((tiles, -(-pairs // 4) * 4), np.uint8),
        ],
    )
    # Words of four codes: [tile, pair, group, output, block] to [tile, output, pair, block, group].
    words = np.ascontiguousarray(records[..., :512]).view(np.uint32)
    in_code_order = words.reshape(tiles, pairs, 4, TILE_OUTPUTS, 2).transpose(0, 3, 1, 4, 2)
    ordered = np.empty_like(in_code_order)
    ordered[:, _CODE_ORDER] = in_code_order
    both = np.ascontiguousarray(ordered).view(np.uint8)
    codes = np.concatenate([both & np.uint8(15), both >> np.uint8(4)], axis=-1).astype(np.int32)
    scales = np.ascontiguousarray(records[..., 512:])
    # [d or m, tile, output, pair, block]: integers by output, floats by block.
    as_integers = scales.view(np.int16).reshape(tiles, pairs, 2, TILE_OUTPUTS, 2)
    as_halves = scales.view(np.float16).reshape(tiles, pairs, 2, 2, TILE_OUTPUTS)
    d, m = as_integers.transpose(2, 0, 3, 1, 4)[..., None].astype(np.int32)
    by_unit = (d * (codes - 8) + m).astype(np.float32) * units
    # Integers read as halves can be anything.
    with np.errstate(invalid="ignore", over="ignore"):
        d_half, m_half = as_halves.transpose(2, 0, 4, 1, 3)[..., None].astype(np.float32)
        by_half = d_half * codes.astype(np.float32) + m_half
    chosen: F32 = np.where(flags[:, None, :pairs, None, None] != 0, by_half, by_unit)
    return chosen


def _by_output(scales: NDArray[Any]) -> F32:
    """`f16 [T, KB, 16]` as `f32 [T, 16, KB]`."""
    return np.ascontiguousarray(scales.transpose(0, 2, 1)).astype(np.float32)


def _codes(q: NDArray[Any]) -> F32:
    """Words `[T, KB, G, 16]` of four codes as `f32 [T, 16, KB, 4 G]`: k = 4 g + j in a block."""
    ordered = np.ascontiguousarray(q.transpose(0, 3, 1, 2))
    return ordered.view(np.uint8).astype(np.float32)


def _nibbles(q: NDArray[Any]) -> F32:
    """Words `[T, KB, 4, 16]` of four code pairs as `f32 [T, 16, KB, 32]`: the low nibbles are the
    first half of a block."""
    low, high = q & np.uint32(0x0F0F0F0F), (q >> np.uint32(4)) & np.uint32(0x0F0F0F0F)
    return np.concatenate([_codes(low), _codes(high)], axis=-1)


def _floats(values: NDArray[Any]) -> F32:
    """float32 of f32, f16 or bf16 (as u16) values, contiguous."""
    contiguous = np.ascontiguousarray(values)
    if contiguous.dtype == np.uint16:
        return (contiguous.astype(np.uint32) << 16).view(np.float32)
    return contiguous.astype(np.float32)


def _matrix(values: F32, outputs: int, width: int) -> F32:
    """Drops the padding outputs of the last tile."""
    return values.reshape(-1, width)[:outputs]


def _planes(raw: U8, shapes: list[tuple[tuple[int, ...], type[np.generic]]]) -> list[NDArray[Any]]:
    """Views of consecutive planes. Raises ValueError where they need more bytes than there are."""
    planes: list[NDArray[Any]] = []
    start = 0
    for shape, element in shapes:
        end = start + int(np.prod(shape)) * np.dtype(element).itemsize
        if end > len(raw):
            raise ValueError(f"the packed matrix needs {end} bytes or more, there are {len(raw)}")
        planes.append(raw[start:end].view(element).reshape(shape))
        start = end
    return planes


def _check_multiple(width: int, of: int) -> None:
    if width % of:
        raise ValueError(f"the packing takes widths that are multiples of {of}, not {width}")
