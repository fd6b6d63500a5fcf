"""Draws the weights of a draft: the same bytes for the same seed, on any number of threads.

Each block of a matrix has a generator of its own, seeded by the seed, the tensor's name and the
block's number. numpy works outside the interpreter's lock, so threads are enough.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.kernels import e4m3
from ignition.preparation.packing import Storage
from ignition.preparation.weight_table import NormalMatrix, WeightTable

# Elements drawn at a time; part of what a seed means.
BLOCK_ELEMENTS: Final = 1 << 20
# Quantiles that codes are drawn from, and the deviation of integer ones; parts of it, too.
_QUANTILES: Final = 1 << 16
_INT8_DEVIATION: Final = 36
# Blocks drawn ahead for each thread.
_AHEAD: Final = 2


def draw(table: WeightTable, seed: int) -> Iterator[memoryview]:
    """The resource from its first byte to its last."""
    threads = len(os.sched_getaffinity(0))
    waiting: deque[Future[memoryview]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for part in _parts(table, seed):
            waiting.append(pool.submit(part))
            if len(waiting) > _AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _parts(table: WeightTable, seed: int) -> Iterator[Callable[[], memoryview]]:
    """The resource in pieces, gaps between tensors included, each to be made on its own."""
    written = 0
    for tensor in table.tensors:
        if tensor.offset > written:
            yield _zeros(tensor.offset - written)
        written = tensor.offset + tensor.nbytes
        if isinstance(tensor, NormalMatrix):
            elements = tensor.outputs * tensor.width
            for number, first in enumerate(range(0, elements, BLOCK_ELEMENTS)):
                count = min(BLOCK_ELEMENTS, elements - first)
                generator = _generator(tensor.name, number, seed)
                if tensor.storage is Storage.BF16:
                    yield _block(generator, count, tensor.deviation)
                else:
                    yield _codes(generator, count, tensor.storage)
            if tensor.storage is not Storage.BF16:
                yield from _scales(tensor)
        else:
            yield _values(tensor.content)
    if table.nbytes > written:
        yield _zeros(table.nbytes - written)


def _zeros(nbytes: int) -> Callable[[], memoryview]:
    return lambda: memoryview(bytes(nbytes))


def _values(content: NDArray[np.float32]) -> Callable[[], memoryview]:
    return lambda: np.ascontiguousarray(content, "<f4").view(np.uint8).data


def _generator(name: str, number: int, seed: int) -> Callable[[], np.random.Generator]:
    digest = hashlib.sha256(f"{seed}/{name}/{number}".encode()).digest()
    return lambda: np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))


@cache
def _normal_codes(storage: Storage) -> NDArray[np.uint8]:
    """Codes of the normal distribution's quantiles: those of deviation 1, times `_INT8_DEVIATION`
    where they are integers."""
    normal = NormalDist()
    shares = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    values = np.array([normal.inv_cdf(share) for share in shares], np.float32)
    if storage is Storage.F8_E4M3:
        return e4m3.nearest(values)
    integers = np.rint(values * np.float32(_INT8_DEVIATION)).clip(-127, 127).astype(np.int8)
    codes: NDArray[np.uint8] = integers.view(np.uint8)
    return codes


def _codes(
    generator: Callable[[], np.random.Generator], count: int, storage: Storage
) -> Callable[[], memoryview]:
    codes = _normal_codes(storage)
    return lambda: codes[generator().integers(0, _QUANTILES, count, np.uint16)].data


def _scales(tensor: NormalMatrix) -> Iterator[Callable[[], memoryview]]:
    """One value for all, and the zeros behind them."""
    count = tensor.outputs * tensor.storage.row_scales(tensor.width)
    of_code = 1 if tensor.storage is Storage.F8_E4M3 else _INT8_DEVIATION
    yield _values(np.full(count, tensor.deviation / of_code, np.float32))
    rest = tensor.nbytes - tensor.outputs * tensor.width - 4 * count
    if rest:
        yield _zeros(rest)


def _block(
    generator: Callable[[], np.random.Generator], count: int, deviation: float
) -> Callable[[], memoryview]:
    def drawn() -> memoryview:
        values = generator().standard_normal(count, dtype=np.float32)
        values *= np.float32(deviation)
        bits = values.view(np.uint32)
        bits += np.uint32(0x8000)  # to the nearest of what bf16 holds
        return (bits >> 16).astype("<u2").view(np.uint8).data

    return drawn
