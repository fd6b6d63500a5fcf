"""Compiles many requests, several at a time, each in a process of its own.

What was compiled once on this machine is read from Triton's cache (`TRITON_CACHE_DIR`,
`~/.triton/cache`), so a second preparation takes seconds.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Final

from helios.errors import ExecutionError
from ignition.kernels.cuda.compile import CompiledKernel, KernelRequest, compile

# Requests below which another process costs more than it saves.
_FEW: Final = 4


@dataclass(frozen=True)
class _Task:
    """A request as it travels to another process: kernels can't, so they go by their names."""

    module: str
    function: str
    arguments: dict[str, str]
    constants: dict[str, int | float | bool]
    num_warps: int
    num_stages: int
    multiples_of_16: frozenset[str]
    maximum_registers: int | None


def compile_all(
    requests: Mapping[str, KernelRequest], architecture: str, advance: Callable[[int], None]
) -> dict[str, CompiledKernel]:
    """Every request compiled, by the names given; `advance` gets how many are done. Raises
    ContractError as `compile` does, and ExecutionError where a process that compiles is ended from
    outside, as a system does that has no memory left."""
    workers = min(len(os.sched_getaffinity(0)), len(requests) // _FEW)
    if workers <= 1 and not any(request.function.is_gluon() for request in requests.values()):
        compiled = {}
        for name, request in requests.items():
            compiled[name] = compile(request, architecture)
            advance(len(compiled))
        return compiled
    found: dict[str, CompiledKernel] = {}
    # A fresh interpreter each: this one has threads, and a copy of it could wait for them for ever.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(workers, 1), mp_context=context, initializer=_end_quietly) as pool:
        try:
            futures = {
                pool.submit(_compile, _task(request), architecture): name
                for name, request in requests.items()
            }
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                advance(len(found))
        except BrokenProcessPool as error:
            pool.shutdown(cancel_futures=True)
            raise ExecutionError(
                "a process was ended before its kernel was done, for want of memory perhaps",
                where="compiling kernels",
                remedy="Free memory, or let fewer processors compile (`taskset -c 0` makes it"
                " one kernel after another); what is compiled already isn't again",
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: found[name] for name in requests}


def _end_quietly() -> None:
    """This process ends without a word: having compiled Gluon, Triton's binding would list what it
    hasn't given back."""

    def hide() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)

    atexit.register(hide)


def _task(request: KernelRequest) -> _Task:
    return _Task(
        request.function.__module__,
        request.function.__name__,
        dict(request.arguments),
        dict(request.constants),
        request.num_warps,
        request.num_stages,
        request.multiples_of_16,
        request.maximum_registers,
    )


def _compile(task: _Task, architecture: str) -> CompiledKernel:
    request = KernelRequest(
        getattr(importlib.import_module(task.module), task.function),
        task.arguments,
        task.constants,
        task.num_warps,
        task.num_stages,
        task.multiples_of_16,
        task.maximum_registers,
    )
    return compile(request, architecture)
