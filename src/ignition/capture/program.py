"""One program in the making: its scratch and its launches, each checked when it is recorded.

A launch must name a kernel of the catalogue, give exactly its operands and attributes, and every
operand must be a buffer of the same manifest with the dtype and extent that the kernel derives
from its attributes. The op layer is the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from helios.errors import ContractError
from helios.kernels.catalogue import BY_NAME, ActivationFormat, KernelSpec
from helios.schema import execution_pb2 as pb
from ignition.capture import extents
from ignition.capture.buffers import BufferTable
from ignition.capture.handles import FORMAT_DTYPE, Activation, BufferHandle
from ignition.capture.liveness import OperandUse, RecordedLaunch
from ignition.capture.needs import Need
from ignition.capture.target import Target

if TYPE_CHECKING:
    from ignition.capture.tuning import ProgramTuning

_READ_ONLY: Final = frozenset({pb.BUFFER_CLASS_WEIGHT, pb.BUFFER_CLASS_INPUT})


class ProgramRecorder:
    """One program in the making: allocates its workspace, appends its launches."""

    def __init__(self, buffers: BufferTable, message: pb.Program, target: Target) -> None:
        self._buffers = buffers
        self._workspace: dict[str, BufferHandle] = {}
        self._section = ""
        self.message = message
        self.target = target
        # Set where projections take a blocking that startup tuning picks.
        self.tuning: ProgramTuning | None = None
        self.launches: list[RecordedLaunch] = []

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Within it roles are apart from those outside: for a part of a program that does what
        another part does with other extents."""
        outer, self._section = self._section, f"{self._section}{name}."
        try:
            yield
        finally:
            self._section = outer

    def workspace(self, role: str, dtype: pb.DType, shape: Sequence[int]) -> BufferHandle:
        """Scratch of this program. The same role names the same buffer each time (one for all
        layers); its bytes are reserved only between a write and the last read of it."""
        role = f"{self._section}{role}"
        known = self._workspace.get(role)
        if known is None:
            known = self._buffers.plain(
                f"{self.message.name}/{role}", pb.BUFFER_CLASS_WORKSPACE, dtype, shape
            )
            self._workspace[role] = known
        if known.dtype != dtype or known.shape != tuple(shape):
            raise ContractError(
                f"a role is one buffer, asked for as {known.shape} and as {tuple(shape)}",
                where=known.name,
                remedy="Use another role name",
            )
        return known

    def activation(
        self, role: str, rows: int, width: int, form: ActivationFormat = ActivationFormat.F32
    ) -> Activation:
        """Scratch for `rows` activations of `width` in a format."""
        return Activation(self.workspace(role, FORMAT_DTYPE[form], (rows, width)), width, form)

    def launch(
        self,
        kernel: str,
        operands: Mapping[str, BufferHandle],
        integers: Mapping[str, int],
        floats: Mapping[str, float] | None = None,
        *,
        overwrites: Sequence[str] = (),
    ) -> None:
        """Appends a launch. `overwrites` names read-write operands whose old content doesn't
        matter here. Raises ContractError naming program, launch, kernel and operand."""
        where = f"{self.message.name} launch {len(self.launches)} ({kernel})"
        spec = BY_NAME.get(kernel)
        if spec is None:
            raise ContractError("no such kernel in the catalogue", where=where)
        _same_names("operands", operands, _operand_names(spec, operands), where)
        _same_names("integers", integers, spec.integers, where)
        _same_names("floats", floats or {}, spec.floats, where)
        needs = extents.needs(kernel, integers)
        uses: list[OperandUse | None] = []
        for operand in spec.operands:
            handle = operands.get(operand.name)
            if handle is None:
                uses.append(None)
                continue
            place = f"{where} operand {operand.name}"
            if not self._buffers.owns(handle):
                raise ContractError(f"{handle.name} isn't a buffer of this manifest", where=place)
            _check_operand(handle, needs[operand.name], "w" in operand.access, place)
            fresh = operand.name in overwrites
            uses.append(OperandUse(handle, "w" if fresh else operand.access))
        self.launches.append(
            RecordedLaunch(
                spec,
                tuple(uses),
                tuple(integers[name] for name in spec.integers),
                tuple((floats or {})[name] for name in spec.floats),
            )
        )


def _operand_names(spec: KernelSpec, given: Mapping[str, object]) -> tuple[str, ...]:
    """The names that `given` must have: the required ones, and what it has of the optional."""
    return tuple(o.name for o in spec.operands if not o.optional or o.name in given)


def _same_names(
    kind: str, given: Mapping[str, object], expected: Sequence[str], where: str
) -> None:
    if set(given) != set(expected):
        raise ContractError(
            f"{kind} are {', '.join(expected) or 'none'}; got {', '.join(given) or 'none'}",
            where=where,
        )


def _is_lost(handle: BufferHandle, written: bool) -> bool:
    """Whether writing a part would end the life of the other parts, as liveness sees it."""
    return written and handle.buffer_class == pb.BUFFER_CLASS_WORKSPACE


def _check_operand(handle: BufferHandle, need: Need, written: bool, where: str) -> None:
    if handle.packing != need.packing:
        raise ContractError(
            f"{handle.name} is {pb.Packing.Name(handle.packing)}, the launch says "
            f"{pb.Packing.Name(need.packing)}",
            where=where,
        )
    if need.dtype is not None and handle.dtype != need.dtype:
        raise ContractError(
            f"{handle.name} is {pb.DType.Name(handle.dtype)}, the kernel takes "
            f"{pb.DType.Name(need.dtype)}",
            where=where,
        )
    if need.leading != pb.LEADING_COUNT_FIXED:
        if handle.leading != need.leading or handle.nbytes != need.nbytes:
            raise ContractError(
                f"{handle.name} has rows of {handle.nbytes} bytes, the kernel takes "
                f"{pb.LeadingCount.Name(need.leading)} rows of {need.nbytes}",
                where=where,
            )
    elif handle.nbytes - handle.first_byte < need.nbytes:
        raise ContractError(
            f"{handle.name} has {handle.nbytes - handle.first_byte} bytes, the kernel uses"
            f" {need.nbytes}",
            where=where,
        )
    if handle.first_byte and (not handle.is_fixed or _is_lost(handle, written)):
        raise ContractError(
            f"{handle.name} can't be used in part: it has rows, or its values live as a whole",
            where=where,
        )
    if written and handle.buffer_class in _READ_ONLY:
        raise ContractError(f"{handle.name} may only be read", where=where)
