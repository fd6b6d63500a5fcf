"""The native library: kernels of the `cpu` target and the replayer that walks programs."""

import numpy as np
from numpy.typing import NDArray

def instruction_sets() -> list[str]:
    """Instruction sets this machine can run, widest first: of "avx512", "avx2", "portable"."""

def catalogue() -> list[tuple[str, list[str], list[str], list[str]]]:
    """(name, operands, integers, floats) of every kernel; a kernel's id is its index here.
    Optional operands end in "?"."""

class Replayer:
    """A thread pool and a queue of submissions, executed one after the other. Any thread may call
    any method.

    The pool's own threads ("helios-pool-0", …) execute; between submissions they sleep. What is
    still open at interpreter exit is closed then. In a forked child every method raises
    RuntimeError, but `close`, which does nothing there."""

    def __init__(self, threads: int, instruction_set: str) -> None:
        """Starts the threads. Raises ValueError for a number of threads outside 1 to 1024 or a
        set that isn't among `instruction_sets()`, RuntimeError where the system refuses."""
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
        owners: object = None,
    ) -> int:
        """Registers a launch list (CSR arrays, one entry of *_starts a launch plus the end) and
        returns its id. Address 0 is an absent operand. The list is copied. The memory at the
        addresses must stay alive until `close`, so `owners`, what it belongs to, is kept until
        then; it mustn't refer to the replayer. The workers' scratch is allocated here, none while
        programs run. Raises ValueError naming the launch, the kernel and the operand or attribute
        that doesn't fit, or the scratch that a launch needs beyond 128 MiB a worker; RuntimeError
        while a submission is outstanding and where there is no memory for the scratch."""
    def submit(self, program: int, sequence: int) -> None:
        """Queues a program and returns at once. Sequences ascend by one from 1. Raises ValueError
        for any other sequence or an unknown program, RuntimeError after `close` and when 256
        submissions are outstanding."""
    def completed(self) -> int:
        """The last sequence whose program has run."""
    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits, without the GIL, until `sequence` has completed; False on time-out. Signals are
        handled after the wait, so keep `timeout_ms` short where they matter."""
    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) of a completed one of the last 256 sequences, on
        time.monotonic_ns's clock. Raises ValueError for any other."""
    def scratch_nbytes(self) -> int:
        """Bytes of scratch allocated so far, all workers together."""
    def launches(self) -> int:
        """Launches executed so far."""
    def close(self) -> None:
        """Finishes what is queued and ends the threads. Idempotent."""
