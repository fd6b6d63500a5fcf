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
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.weight_table import NormalMatrix, WeightTable

# Elements drawn at a time; part of what a seed means.
BLOCK_ELEMENTS: Final = 1 << 20
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
                yield _block(tensor.name, number, count, tensor.deviation, seed)
        else:
            yield _values(tensor.content)
    if table.nbytes > written:
        yield _zeros(table.nbytes - written)


def _zeros(nbytes: int) -> Callable[[], memoryview]:
    return lambda: memoryview(bytes(nbytes))


def _values(content: NDArray[np.float32]) -> Callable[[], memoryview]:
    return lambda: np.ascontiguousarray(content, "<f4").view(np.uint8).data


def _block(
    name: str, number: int, count: int, deviation: float, seed: int
) -> Callable[[], memoryview]:
    def drawn() -> memoryview:
        digest = hashlib.sha256(f"{seed}/{name}/{number}".encode()).digest()
        random = np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))
        values = random.standard_normal(count, dtype=np.float32)
        values *= np.float32(deviation)
        bits = values.view(np.uint32)
        bits += np.uint32(0x8000)  # to the nearest of what bf16 holds
        return (bits >> 16).astype("<u2").view(np.uint8).data

    return drawn
