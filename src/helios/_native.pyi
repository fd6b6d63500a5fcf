"""The native library: kernels of the `cpu` target and the replayer that walks programs."""

import numpy as np
from numpy.typing import NDArray

def instruction_sets() -> list[str]:
    """Instruction sets this machine can run, widest first: of "avx512", "avx2", "portable"."""

def catalogue() -> list[tuple[str, list[str], list[str], list[str]]]:
    """(name, operands, integers, floats) of every kernel; a kernel's id is its index here.
    Optional operands end in "?"."""

class Replayer:
    """A thread pool and a queue of submissions, executed one after the other."""

    def __init__(self, threads: int, instruction_set: str) -> None: ...
    def add_program(
        self,
        kernels: NDArray[np.int32],
        operand_starts: NDArray[np.int32],
        addresses: NDArray[np.uint64],
        nbytes: NDArray[np.uint64],
        integer_starts: NDArray[np.int32],
        integers: NDArray[np.int64],
        float_starts: NDArray[np.int32],
        floats: NDArray[np.float64],
    ) -> int:
        """Registers a launch list (CSR arrays, one entry of *_starts a launch plus the end) and
        returns its id. Address 0 is an absent operand. Raises ValueError naming the launch, the
        kernel and the operand that doesn't fit its attributes."""
    def submit(self, program: int, sequence: int) -> None:
        """Queues a program and returns at once. Sequences ascend by one from 1."""
    def completed(self) -> int:
        """The last sequence whose program has run."""
    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits, without the GIL, until `sequence` has completed; False on time-out."""
    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) of one of the last 256 sequences, on time.monotonic_ns's clock."""
    def launches(self) -> int:
        """Launches executed so far."""
    def close(self) -> None:
        """Finishes what is queued and ends the threads. Idempotent."""
