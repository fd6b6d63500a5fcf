"""From an ExecutionManifest message to a `Manifest`: buffers, transport and completion records.

Everything that the manifest alone can tell is checked here and in `program_decoder`: names,
references, sizes (in exact integers, before anything is allocated), kernels against the
catalogue. What it must agree on with the contract is in `manifest_checks`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from helios.contract.fields import (
    each,
    enum,
    integer,
    join,
    name,
    refuse,
    refuse_unknown_fields,
    unique,
)
from helios.runtime.manifest import (
    Buffer,
    BufferClass,
    DeltaDestination,
    Destination,
    DType,
    LeadingCount,
    Manifest,
    Packing,
    StagedDestination,
    packed_nbytes,
)
from helios.runtime.node_decoder import decode_target
from helios.runtime.program_decoder import ProgramDecoder
from helios.runtime.record_decoder import RecordDecoder, find_buffer
from helios.schema import execution_pb2

# No buffer of a real model comes near; sums of a few million of these still fit 64 bits.
BUFFER_LIMIT_NBYTES = 1 << 42
DIMENSIONS_LIMIT = 8
OFFSET_ALIGNMENT = 64
_LEADING_BY_CLASS = {
    BufferClass.WEIGHT: (LeadingCount.FIXED,),
    BufferClass.CACHE: (LeadingCount.CACHE_PAGES, LeadingCount.SNAPSHOT_ROWS),
    BufferClass.STATE: (
        LeadingCount.FIXED,
        LeadingCount.REQUEST_SLOTS,
        LeadingCount.SNAPSHOT_ROWS,
    ),
    BufferClass.INPUT: (LeadingCount.FIXED, LeadingCount.REQUEST_SLOTS),
    BufferClass.COMPLETION: (LeadingCount.FIXED,),
    BufferClass.WORKSPACE: (LeadingCount.FIXED,),
    BufferClass.TUNED: (LeadingCount.FIXED,),
    BufferClass.HOST_TABLE: (LeadingCount.FIXED,),
    BufferClass.COUNTER: (LeadingCount.FIXED,),
}
_WORD = (DType.I32, DType.U32)


def decode_manifest(message: execution_pb2.ExecutionManifest) -> Manifest:
    """The validated manifest. Raises ContractError whose `where` is the field's path from the
    ExecutionManifest, like `programs[3].launches[7].operands[1].buffer`."""
    refuse_unknown_fields(message)
    target = name(message.target, "target")
    cuda = decode_target(message, target)
    arena = integer(message.workspace_nbytes, "workspace_nbytes", high=BUFFER_LIMIT_NBYTES)
    buffers = each(message.buffers, "buffers", lambda m, at: _buffer(m, at, arena))
    unique((buffer.name for buffer in buffers), "buffers", ".name")
    index = {buffer.name: number for number, buffer in enumerate(buffers)}
    lookup = _Lookup(buffers, index)
    destinations = each(message.destinations, "destinations", lookup.destination)
    unique((d.name for d in destinations), "destinations", ".name")
    _refuse_shared_staging(destinations)
    completions = each(message.completions, "completions", RecordDecoder(buffers, index).decode)
    unique((record.name for record in completions), "completions", ".name")
    programs = ProgramDecoder(
        message.kernels,
        buffers,
        destinations={destination.name for destination in destinations},
        completions={record.name: record for record in completions},
        cuda=cuda,
    )
    serving = each(message.programs, "programs", programs.decode)
    tuning = each(message.tuning, "tuning", programs.decode)
    unique((program.name for program in serving), "programs", ".name")
    unique((program.name for program in (*serving, *tuning)), "programs and tuning", ".name")
    return Manifest(
        abi=message.abi,
        target=target,
        buffers=buffers,
        programs=serving,
        tuning=tuning,
        destinations={destination.name: destination for destination in destinations},
        completions={record.name: record for record in completions},
        workspace_nbytes=arena,
        cuda=cuda,
    )


def _buffer(message: Any, where: str, arena: int) -> Buffer:
    kind = enum(BufferClass, message.buffer_class, join(where, "buffer_class"))
    dtype = enum(DType, message.dtype, join(where, "dtype"))
    packing = enum(Packing, message.packing, join(where, "packing"))
    leading = enum(LeadingCount, message.leading, join(where, "leading"))
    if leading not in _LEADING_BY_CLASS[kind]:
        refuse(join(where, "leading"), f"a {kind.name} buffer can't lead with {leading.name}")
    if packing is not Packing.PLAIN and kind is not BufferClass.WEIGHT:
        refuse(join(where, "packing"), f"{packing.name} belongs to weights, not to {kind.name}")
    if kind is BufferClass.COUNTER and dtype not in _WORD:
        refuse(join(where, "dtype"), f"counters have 32 bits, {dtype.name} doesn't")
    nbytes = _shape_nbytes(message, where, dtype, packing)
    if message.nbytes != nbytes:
        refuse(join(where, "nbytes"), f"is {message.nbytes}, but the shape takes {nbytes}")
    _check_offset(message, where, kind, arena)
    if kind is BufferClass.WEIGHT:
        name(message.resource, join(where, "resource"))
    elif message.resource:
        refuse(join(where, "resource"), f"belongs to weights, not to {kind.name}")
    return Buffer(
        name=name(message.name, join(where, "name")),
        buffer_class=kind,
        dtype=dtype,
        packing=packing,
        leading=leading,
        shape=tuple(message.shape),
        nbytes=nbytes,
        offset=message.offset,
        resource=message.resource,
    )


def _shape_nbytes(message: Any, where: str, dtype: DType, packing: Packing) -> int:
    """Bytes of the declared shape (of one row, with a symbolic leading count)."""
    shape, path = tuple(message.shape), join(where, "shape")
    if not 1 <= len(shape) <= DIMENSIONS_LIMIT:
        refuse(path, f"has {len(shape)} dimensions, not 1 to {DIMENSIONS_LIMIT}")
    for number, extent in enumerate(shape):
        integer(extent, f"{path}[{number}]", low=1, high=BUFFER_LIMIT_NBYTES)
    if packing is Packing.PLAIN:
        if shape[-1] % dtype.width_multiple:
            refuse(
                f"{path}[{len(shape) - 1}]", f"{shape[-1]} is no multiple of {dtype.width_multiple}"
            )
        nbytes: int = prod(shape[:-1]) * dtype.row_nbytes(shape[-1])
    else:
        if len(shape) != 2:
            refuse(path, f"{packing.name} packs a matrix, not {len(shape)} dimensions")
        if shape[1] % packing.width_multiple:
            refuse(f"{path}[1]", f"{shape[1]} is no multiple of {packing.width_multiple}")
        nbytes = packed_nbytes(packing, shape[0], shape[1])
    if nbytes > BUFFER_LIMIT_NBYTES:
        refuse(path, f"takes {nbytes} bytes, over the limit of {BUFFER_LIMIT_NBYTES}")
    return nbytes


def _check_offset(message: Any, where: str, kind: BufferClass, arena: int) -> None:
    path = join(where, "offset")
    if kind not in (BufferClass.WEIGHT, BufferClass.WORKSPACE):
        if message.offset:
            refuse(path, f"belongs to weights and workspace, not to {kind.name}")
        return
    integer(message.offset, path, high=BUFFER_LIMIT_NBYTES)
    if message.offset % OFFSET_ALIGNMENT:
        refuse(path, f"{message.offset} is no multiple of {OFFSET_ALIGNMENT}")
    if kind is BufferClass.WORKSPACE and message.offset + message.nbytes > arena:
        refuse(path, f"the buffer ends at {message.offset + message.nbytes}, past {arena}")


def _refuse_shared_staging(destinations: tuple[Destination, ...]) -> None:
    """Two destinations in one staging buffer would overwrite each other."""
    owner: dict[int, str] = {}
    for number, destination in enumerate(destinations):
        if isinstance(destination, StagedDestination):
            staging = [destination.buffer]
        else:
            staging = [destination.count, destination.index, destination.value]
        for buffer in staging:
            if buffer in owner:
                refuse(
                    f"destinations[{number}]",
                    f"{destination.name!r} is staged in the same buffer as {owner[buffer]!r}",
                )
            owner[buffer] = destination.name


class _Lookup:
    """Reads what refers to buffers by name."""

    def __init__(self, buffers: tuple[Buffer, ...], index: dict[str, int]) -> None:
        self._buffers = buffers
        self._index = index

    def destination(self, message: Any, where: str) -> Destination:
        """A staged or delta destination."""
        destination = name(message.name, join(where, "name"))
        mode = message.WhichOneof("mode")
        if mode is None:
            refuse(join(where, "mode"), "is missing")
        if mode == "staged_buffer":
            path = join(where, "staged_buffer")
            return StagedDestination(
                destination, self._buffer(message.staged_buffer, path, BufferClass.INPUT)
            )
        return self._delta(destination, message.delta, join(where, "delta"))

    def _delta(self, destination: str, message: Any, where: str) -> DeltaDestination:
        target = self._buffer(message.target_buffer, join(where, "target_buffer"))
        if self._buffers[target].buffer_class is not BufferClass.STATE:
            refuse(join(where, "target_buffer"), "is no STATE buffer")
        delta = DeltaDestination(
            name=destination,
            target=target,
            count=self._staging(message, where, "count_buffer"),
            index=self._staging(message, where, "index_buffer"),
            value=self._staging(message, where, "value_buffer"),
        )
        if self._buffers[target].dtype not in _WORD:
            refuse(join(where, "target_buffer"), "its elements don't have 32 bits")
        if self._buffers[delta.count].shape != (1,):
            refuse(join(where, "count_buffer"), "doesn't hold exactly one element")
        if self._buffers[delta.index].shape != self._buffers[delta.value].shape:
            refuse(join(where, "value_buffer"), "has another shape than the index buffer")
        return delta

    def _staging(self, message: Any, where: str, field: str) -> int:
        """A fixed INPUT buffer of one dimension and 32-bit elements."""
        path = join(where, field)
        found = self._buffer(getattr(message, field), path, BufferClass.INPUT)
        buffer = self._buffers[found]
        fixed = buffer.leading is LeadingCount.FIXED
        if buffer.dtype not in _WORD or len(buffer.shape) != 1 or not fixed:
            refuse(path, "is no fixed list of 32-bit elements")
        return found

    def _buffer(self, buffer: str, where: str, kind: BufferClass | None = None) -> int:
        return find_buffer(self._buffers, self._index, buffer, where, kind)
