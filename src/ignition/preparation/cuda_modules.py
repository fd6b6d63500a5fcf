"""The nodes and modules of a cuda core: lowers what was recorded, compiles it, places the result.

The only module of preparation that needs the extra `cuda-prepare`; it is asked for when a cuda
target is. No GPU takes part.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from helios.errors import ContractError
from helios.schema import execution_pb2 as pb
from ignition.capture import nodes
from ignition.capture.lowering import Kernels
from ignition.capture.recorder import Recorder
from ignition.capture.target import Target
from ignition.kernels.cuda.launches import ARCHITECTURES
from ignition.preparation.progress import Progress

if TYPE_CHECKING:
    from ignition.kernels.cuda.compile import CompiledKernel

_DIGEST_CHARACTERS: Final = 16
# Variables by which Triton, LLVM or ptxas make something else of a kernel, or nothing.
_SETTINGS: Final = (
    *("TRITON_INTERPRET", "TRITON_DEBUG", "TRITON_OVERRIDE_ARCH", "TRITON_KERNEL_OVERRIDE"),
    *("TRITON_F32_DEFAULT", "TRITON_ENABLE_ASAN", "TRITON_INSTRUMENTATION_MODE"),
    *(
        "TRITON_MOCK_PTX_VERSION",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_PLUGIN_PATHS",
        "LLVM_PASS_PLUGIN_PATH",
        "USE_IR_LOC",
    ),
    *("DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "DISABLE_MMA_V3"),
)
_UNSET: Final = ("", "0", "false", "off")


@dataclass(frozen=True)
class Modules:
    """What a cuda manifest names, and the content of its modules by their ids."""

    target: pb.CudaTarget
    content: Mapping[str, bytes]


def make_nodes(recorder: Recorder, progress: Progress) -> Modules:
    """Gives the recorder's launches their nodes. Raises ContractError where Triton is missing, or
    a launch has no kernel."""
    need_compiler()
    from ignition.kernels.cuda import transport
    from ignition.kernels.cuda.compile_all import compile_all
    from ignition.kernels.cuda.lowerings import FUSIONS, LOWERINGS

    architecture = recorder.target.architecture
    lowered = nodes.lower_all(recorder, Kernels(LOWERINGS, FUSIONS, ARCHITECTURES[architecture]))
    ends = {request.identity: request for request in (transport.STAGE, transport.RECORD)}
    requests = {**ends, **lowered.requests}
    with progress.stage("compiling kernels", len(requests)) as advance:
        compiled = compile_all(requests, architecture, advance)
    table = _Functions()
    numbered = {
        name: nodes.Compiled(kernel, table.add(kernel)) for name, kernel in compiled.items()
    }
    nodes.place(recorder, lowered, numbered)
    first, second = (numbered[name].function for name in ends)
    table.target.stage, table.target.record = first, second
    return Modules(table.target, table.content)


def compiler_version(target: Target) -> str:
    """Triton and its assembler, as a rebuild manifest records them."""
    need_compiler()
    import triton
    from triton.backends.nvidia.compiler import get_ptxas

    capability = int(target.architecture.removeprefix("sm_"))
    return f"triton {triton.__version__}, ptxas {get_ptxas(capability).version}"


class _Functions:
    """Functions of a manifest, each once."""

    def __init__(self) -> None:
        self.target = pb.CudaTarget()
        self.content: dict[str, bytes] = {}
        self._known: dict[tuple[str, str], int] = {}

    def add(self, kernel: CompiledKernel) -> int:
        """The number of a compiled kernel's function; equal cubins are one module."""
        digest = hashlib.sha256(kernel.cubin).hexdigest()[:_DIGEST_CHARACTERS]
        module = f"module.{kernel.function}.{digest}"
        self.content[module] = kernel.cubin
        key = (module, kernel.function)
        if key not in self._known:
            self._known[key] = len(self.target.functions)
            self.target.functions.add(
                module=module,
                function=kernel.function,
                threads=kernel.threads,
                shared_nbytes=kernel.shared_nbytes,
            )
        return self._known[key]


def need_compiler() -> None:
    """Raises ContractError where cuda targets can't be compiled, or not to the same bytes as
    elsewhere."""
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise ContractError(
            "cuda targets are compiled by Triton, which isn't installed",
            where="--target",
            remedy="Install helios-serve[cuda-prepare]",
        ) from error
    refuse_settings(os.environ)


def refuse_settings(environment: Mapping[str, str]) -> None:
    """Raises ContractError for what would make other modules of the same kernels."""
    for name in _SETTINGS:
        if environment.get(name, "").lower() not in _UNSET:
            raise ContractError(
                f"{name} is in the environment, with which the compiler makes other modules than"
                " the core's rebuild manifest says",
                where="--target",
                remedy="Unset it",
            )
