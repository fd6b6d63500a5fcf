"""Kernels of tests that are compiled on one machine and run on another, which has a GPU.

`collect` notes what a test would run, in files of a folder; `compile_collected` compiles it;
`load` is what the other machine finds. scripts/gpu-bundle and `on_gpu` are the callers.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ignition.kernels.cuda.compile import KernelRequest

_INDEX = "kernels.json"


@dataclass(frozen=True)
class Carried:
    """A compiled kernel. Descriptors are (name, box, swizzle, element) of its tensor maps."""

    cubin: str
    function: str
    threads: int
    shared_nbytes: int
    parameters: tuple[int, ...]
    descriptors: tuple[tuple[str, tuple[int, ...], int, int], ...]


def key_of(request: KernelRequest) -> str:
    """What tells requests apart on both machines."""
    return hashlib.sha256(request.identity.encode()).hexdigest()[:24]


def collect(folder: Path, request: KernelRequest) -> None:
    """Notes a request; tests of several processes may do so at once."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key_of(request)}.request"
    if path.exists():
        return
    fields = {**vars(request), "arguments": dict(request.arguments)}
    fields["constants"] = dict(request.constants)
    fields["function"] = (request.function.__module__, request.function.__name__)
    path.write_bytes(pickle.dumps(fields))


def compile_collected(folder: Path, advance: Callable[[int], None]) -> int:
    """Compiles what is noted in `folder`, beside it; returns how many kernels there are."""
    from importlib import import_module

    from ignition.kernels.cuda.compile import KernelRequest
    from ignition.kernels.cuda.compile_all import compile_all

    requests = {}
    for path in sorted(folder.glob("*.request")):
        fields: dict[str, Any] = pickle.loads(path.read_bytes())
        module, name = fields.pop("function")
        function = getattr(import_module(module), name)
        requests[path.stem] = KernelRequest(function=function, **fields)
        path.unlink()
    compiled = compile_all(requests, "sm_90", advance)
    index = {}
    for key, kernel in compiled.items():
        cubin = f"{hashlib.sha256(kernel.cubin).hexdigest()[:24]}.cubin"
        (folder / cubin).write_bytes(kernel.cubin)
        index[key] = asdict(
            Carried(
                cubin,
                kernel.function,
                kernel.threads,
                kernel.shared_nbytes,
                tuple(parameter.nbytes for parameter in kernel.parameters),
                tuple((d.name, d.box, d.swizzle, d.element) for d in kernel.descriptors),
            )
        )
    (folder / _INDEX).write_text(json.dumps(index))
    return len(index)


def load(folder: Path) -> dict[str, Carried]:
    """Every compiled kernel by its key."""
    found = json.loads((folder / _INDEX).read_text())
    return {
        key: Carried(
            **{
                **entry,
                "parameters": tuple(entry["parameters"]),
                "descriptors": tuple((d[0], tuple(d[1]), *d[2:]) for d in entry["descriptors"]),
            }
        )
        for key, entry in found.items()
    }
