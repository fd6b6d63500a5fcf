"""Triton kernels into cubins, ahead of time and without a GPU.

A `KernelRequest` names a kernel, the types of its arguments, its constants and options; `compile`
returns the cubin for a named architecture with all that a launch needs besides grid and values:
function name, block, shared memory, parameter layout. Equal requests give equal bytes under one
version of Triton, wherever the source lies. The only module here that runs the compiler; nothing
in it asks for a driver.

A cubin runs on its architecture alone (`sm_90` is compiled as `sm_90a`, so neither on 8.x nor on
10.x); a core for several has a cubin for each.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language import NVMMASharedLayout

from helios.errors import ContractError

THREADS_PER_WARP: Final = 32

# What a CTA may have at most, and what it has without asking, in bytes.
SHARED_LIMITS: Final = MappingProxyType(
    {"sm_80": 166_912, "sm_86": 101_376, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448}
)
SHARED_WITHOUT_ASKING: Final = 48 * 1024

_NBYTES: Final = MappingProxyType(
    {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u32": 4, "u64": 8, "bf16": 2, "fp16": 2}
    | {"fp32": 4, "fp64": 8}
)
_DESCRIPTOR: Final = re.compile(r"tensordesc<(?P<element>[a-z0-9]+)\[(?P<block>[0-9, ]+)\]>")
# Elements of descriptors in the compiler's words.
_DESCRIBED: Final = MappingProxyType({"bf16": tl.bfloat16, "fp16": tl.float16, "fp32": tl.float32})
_DESCRIPTOR_NBYTES: Final = 128
# Two pointers that Triton appends to every kernel: global and profiler scratch; passed as 0.
_HIDDEN: Final = ("global_scratch", "profile_scratch")


@dataclass(frozen=True)
class KernelRequest:
    """One variant of a kernel.

    `arguments`: Triton's types of the run-time arguments in the kernel's order (`*bf16`, `i32`,
    `tensordesc<bf16[128, 64]>`). Pointers are promised to be multiples of 16 bytes, and so are
    the integers in `multiples_of_16`; the launching side must keep the promise.
    """

    function: Any
    arguments: Mapping[str, str]
    constants: Mapping[str, int | float | bool]
    num_warps: int
    num_stages: int
    multiples_of_16: frozenset[str] = field(default_factory=frozenset)
    maximum_registers: int | None = None

    @property
    def name(self) -> str:
        """Function name and a digest of what else decides the code, for file and log lines."""
        parts = [
            *(f"{name}:{kind}" for name, kind in self.arguments.items()),
            *(f"{name}={value}" for name, value in sorted(self.constants.items())),
            f"warps={self.num_warps} stages={self.num_stages} registers={self.maximum_registers}",
            *sorted(self.multiples_of_16),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        return f"{self.function.__name__}-{digest}"

    @property
    def identity(self) -> str:
        """Tells requests apart, those of equally named kernels of two modules too."""
        return f"{self.function.__module__}:{self.name}"


@dataclass(frozen=True)
class Parameter:
    """A parameter as the driver sees it (`cuFuncGetParamInfo`); offset and size in bytes.

    A tensor descriptor is several: the 128-byte map, then its shape and strides. With one of
    them offsets aren't those of a C struct, so they are None and the driver is asked.
    """

    name: str
    kind: str
    nbytes: int
    offset: int | None


@dataclass(frozen=True)
class Descriptor:
    """How the tensor map of an argument is made (`cuTensorMapEncodeTiled`).

    `box` counts elements, last axis innermost: what one copy brings, which is less than the
    kernel's block where that is wider than the swizzle. `swizzle` numbers none, 32, 64, 128 bytes;
    `element` is the driver's `CUtensorMapDataType`.
    """

    name: str
    box: tuple[int, ...]
    swizzle: int
    element: int


@dataclass(frozen=True)
class CompiledKernel:
    """A cubin and what its launches have in common."""

    function: str
    architecture: str
    cubin: bytes
    threads: int
    shared_nbytes: int
    parameters: tuple[Parameter, ...]
    descriptors: tuple[Descriptor, ...]

    @property
    def must_ask_for_shared_memory(self) -> bool:
        """Whether the function's limit has to be raised before its first launch."""
        return self.shared_nbytes > SHARED_WITHOUT_ASKING


def compile(request: KernelRequest, architecture: str = "sm_90") -> CompiledKernel:
    """Compiles for `architecture` (`sm_90`).

    Raises `ContractError` where the architecture is unknown, an argument's type or the list of
    arguments doesn't fit the kernel, or the result asks for what a launch can't give.
    """
    where = f"{request.function.__name__} for {architecture}"
    if architecture not in SHARED_LIMITS:
        raise ContractError(
            f"architecture {architecture} is unknown",
            where=where,
            remedy=f"Name one of {', '.join(SHARED_LIMITS)}",
        )
    parameters = parameter_layout(request.arguments)
    _check_names(request, where)
    compiled = _run_compiler(request, int(architecture.removeprefix("sm_")))
    metadata = compiled.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size or metadata.num_ctas != 1:
        raise ContractError(
            "the compiled kernel asks for scratch memory or a cluster",
            where=where,
            remedy="Make descriptors on the host and keep num_ctas at 1",
        )
    if metadata.shared > SHARED_LIMITS[architecture]:
        raise ContractError(
            f"{metadata.shared} bytes of shared memory, of {SHARED_LIMITS[architecture]}",
            where=where,
            remedy="Use smaller blocks or fewer stages",
        )
    return CompiledKernel(
        function=metadata.name,
        architecture=architecture,
        cubin=compiled.asm["cubin"],
        threads=THREADS_PER_WARP * metadata.num_warps,
        shared_nbytes=metadata.shared,
        parameters=parameters,
        descriptors=_descriptors(request, metadata.tensordesc_meta),
    )


def parameter_layout(arguments: Mapping[str, str]) -> tuple[Parameter, ...]:
    """The parameters that arguments of these types become, hidden ones last.

    Raises `ContractError` for a type that isn't known.
    """
    flat = [entry for name, kind in arguments.items() for entry in _flatten(name, kind)]
    flat += [(name, "*i8", 8) for name in _HIDDEN]
    described = any(kind == "map" for _, kind, _ in flat)
    parameters = []
    offset = 0
    for name, kind, nbytes in flat:
        offset = -(-offset // nbytes) * nbytes
        parameters.append(Parameter(name, kind, nbytes, None if described else offset))
        offset += nbytes
    return tuple(parameters)


def _flatten(name: str, kind: str) -> list[tuple[str, str, int]]:
    if kind.startswith("*"):
        return [(name, kind, 8)]
    if kind in _NBYTES:
        return [(name, kind, _NBYTES[kind])]
    if (found := _DESCRIPTOR.fullmatch(kind)) is not None:
        rank = found["block"].count(",") + 1
        return [
            (name, "map", _DESCRIPTOR_NBYTES),
            *((f"{name}.shape{axis}", "i32", 4) for axis in range(rank)),
            *((f"{name}.stride{axis}", "i64", 8) for axis in range(rank)),
        ]
    raise ContractError(
        f"argument {name} has the unknown type {kind}",
        where="kernel signature",
        remedy=f"Use a pointer, a descriptor or one of {', '.join(_NBYTES)}",
    )


# The compiler's element types in the driver's numbering.
_ELEMENTS: Final = MappingProxyType({"bf16": 9, "fp16": 6, "fp32": 7, "i8": 0, "u8": 0, "i32": 4})


def _descriptors(request: KernelRequest, described: Any) -> tuple[Descriptor, ...]:
    names = [name for name, kind in request.arguments.items() if kind.startswith("tensordesc")]
    return tuple(
        Descriptor(
            name,
            tuple(entry["block_size"]),
            entry["swizzle"],
            _ELEMENTS[request.arguments[name].removeprefix("tensordesc<").partition("[")[0]],
        )
        for name, entry in zip(names, described or (), strict=True)
    )


def _check_names(request: KernelRequest, where: str) -> None:
    given = [*request.arguments, *request.constants]
    expected = list(request.function.arg_names)
    if sorted(given) != sorted(expected):
        raise ContractError(
            f"arguments and constants {sorted(given)} where the kernel has {sorted(expected)}",
            where=where,
            remedy="Give every parameter of the kernel once",
        )
    ordered = [name for name in expected if name in request.arguments]
    if ordered != list(request.arguments):
        raise ContractError(
            f"arguments in the order {list(request.arguments)}, the kernel's is {ordered}",
            where=where,
            remedy="List them as the kernel does",
        )


def _run_compiler(request: KernelRequest, capability: int) -> Any:
    function = request.function
    signature = {name: request.arguments.get(name, "constexpr") for name in function.arg_names}
    source = ASTSource
    if function.is_gluon():
        source = GluonASTSource
        signature = {name: _with_layout(kind) for name, kind in signature.items()}
    attributes = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(function.arg_names)
        if signature[name].startswith("*") or name in request.multiples_of_16
    }
    options: dict[str, Any] = {
        "num_warps": request.num_warps,
        "num_stages": request.num_stages,
        # Fused or not changes results; kernels that want a fused operation say `tl.fma`.
        "enable_fp_fusion": False,
    }
    if request.maximum_registers is not None:
        options["maxnreg"] = request.maximum_registers
    # Line information would put the source's path into the cubin.
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True
        return triton.compile(
            source(function, signature, dict(request.constants), attributes),
            target=GPUTarget("cuda", capability, THREADS_PER_WARP),
            options=options,
        )


def _with_layout(kind: str) -> str:
    """A descriptor's type with the layout that its block has in shared memory, which Gluon wants
    said and Triton finds by itself."""
    if (found := _DESCRIPTOR.fullmatch(kind)) is None:
        return kind
    block = [int(extent) for extent in found["block"].split(",")]
    layout = NVMMASharedLayout.get_default_for(block, _DESCRIBED[found["element"]])
    return f"{kind[:-1]},{layout!r}>"
