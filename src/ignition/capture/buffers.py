"""The buffers of one manifest: declares each once and hands out its handle.

Weights are laid out one after the other as they are declared. Knows no launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.errors import ContractError
from helios.schema import execution_pb2 as pb
from ignition.capture.handles import BufferHandle, dense_nbytes, packed_nbytes
from ignition.capture.planner import aligned

WEIGHT_ALIGNMENT_NBYTES: Final = 64


class BufferTable:
    """Handles by name, in the order of declaration, which is that of the manifest."""

    def __init__(self, weight_resource: str) -> None:
        self._weight_resource = weight_resource
        self._handles: dict[str, BufferHandle] = {}
        self.weights_nbytes = 0

    @property
    def handles(self) -> tuple[BufferHandle, ...]:
        """All buffers so far."""
        return tuple(self._handles.values())

    def owns(self, handle: BufferHandle) -> bool:
        """Whether `handle` is one of these buffers, or begins inside of one."""
        found = self._handles.get(handle.name)
        return found is handle or (handle.first_byte > 0 and found == handle.from_byte(0))

    def plain(
        self,
        name: str,
        buffer_class: pb.BufferClass,
        dtype: pb.DType,
        shape: Sequence[int],
        *,
        leading: pb.LeadingCount = pb.LEADING_COUNT_FIXED,
    ) -> BufferHandle:
        """Declares row-major elements; `shape` lacks the symbolic leading count."""
        dims = tuple(shape)
        return self._declare(
            name, buffer_class, dtype, pb.PACKING_PLAIN, dims, dense_nbytes(dtype, dims), leading
        )

    def weight(
        self, name: str, dtype: pb.DType, packing: int, shape: Sequence[int]
    ) -> BufferHandle:
        """Declares the next tensor of the weight resource, at a 64-byte aligned offset."""
        dims = tuple(shape)
        plain = packing == pb.PACKING_PLAIN
        nbytes = dense_nbytes(dtype, dims) if plain else packed_nbytes(packing, dims[0], dims[1])
        offset = aligned(self.weights_nbytes, WEIGHT_ALIGNMENT_NBYTES)
        self.weights_nbytes = offset + nbytes
        return self._declare(
            name,
            pb.BUFFER_CLASS_WEIGHT,
            dtype,
            packing,
            dims,
            nbytes,
            pb.LEADING_COUNT_FIXED,
            resource=self._weight_resource,
            offset=offset,
        )

    def _declare(
        self,
        name: str,
        buffer_class: pb.BufferClass,
        dtype: pb.DType,
        packing: int,
        shape: tuple[int, ...],
        nbytes: int,
        leading: pb.LeadingCount,
        *,
        resource: str = "",
        offset: int = 0,
    ) -> BufferHandle:
        if name in self._handles:
            raise ContractError("a buffer of this name exists already", where=name)
        if nbytes <= 0:
            raise ContractError(f"shape {shape} holds nothing", where=name)
        handle = BufferHandle(
            index=len(self._handles),
            name=name,
            buffer_class=buffer_class,
            dtype=dtype,
            packing=packing,
            leading=leading,
            shape=shape,
            nbytes=nbytes,
            resource=resource,
            offset=offset,
        )
        self._handles[name] = handle
        return handle
