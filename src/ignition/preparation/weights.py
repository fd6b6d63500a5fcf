"""The weights of a core in the making: which tensors, in which storage, where in the resource.

Recipes declare matrices and vectors while they record; nothing is packed then. `content` packs
one tensor after the other later, so that memory holds a single matrix. The storage chosen for the
whole core is applied here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.errors import ContractError
from helios.kernels.catalogue import ROW_GROUP
from helios.schema import core_pb2
from helios.schema import execution_pb2 as pb
from ignition.capture.buffers import BufferTable
from ignition.capture.handles import BufferHandle, Matrix
from ignition.capture.target import CPU, MatrixLayout, Target
from ignition.preparation import pair_packing
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import BLOCK, Bytes, Storage
from ignition.preparation.pair_packing import pack_pairs
from ignition.preparation.quantisation import WeightStorage, storage_of, store_as
from ignition.preparation.stored_matrix import StoredMatrix, interleave_groups, interleave_tiles

CATALOG_VERSION: Final = 1
_DTYPE: Final = {
    Storage.F32: pb.DTYPE_F32,
    Storage.F16: pb.DTYPE_F16,
    Storage.BF16: pb.DTYPE_BF16,
}
_VECTOR_STORAGE: Final = "F32"

Join = Callable[[Sequence[StoredMatrix]], StoredMatrix]


@dataclass(frozen=True)
class _Tensor:
    handle: BufferHandle
    content: Callable[[], Bytes]


class WeightSet:
    """Declared weights. `notes` collects what the storage choice couldn't do as asked."""

    def __init__(
        self,
        buffers: BufferTable,
        checkpoint: Checkpoint,
        choice: WeightStorage,
        target: Target = CPU,
    ) -> None:
        self._by_rows = target.layout is MatrixLayout.ROWS
        self._buffers = buffers
        self._checkpoint = checkpoint
        self._choice = choice
        self._tensors: list[_Tensor] = []
        self._views: list[core_pb2.WeightView] = []
        self.notes: list[str] = []

    def matrix(
        self, name: str, tensors: Sequence[str], join: Join, *, run: int | None = None
    ) -> Matrix:
        """Declares a projection that `join` makes of the checkpoint's matrices `tensors`, in the
        core's storage. `run` is the number of inputs that their producer writes at a time, all by
        default: what reads quantised rows needs whole blocks of them."""
        return self._matrix(name, tensors, join, self._choice, run, pairs=True)

    def gated_matrix(self, name: str, gate: str, up: str) -> Matrix:
        """Declares the joint projection of a gated feed-forward, whose rows alternate as the
        layout has it."""
        join = interleave_groups if self._by_rows else interleave_tiles
        return self.matrix(name, [gate, up], lambda pair: join(*pair))

    def vocabulary_matrix(self, tensor: str) -> Matrix:
        """Declares an embedding or head: int8 where the core is 4-bit or fp8, since its error
        meets the logits directly."""
        choice = self._choice
        if choice in (WeightStorage.INT4, WeightStorage.FP8):
            choice = WeightStorage.INT8
        return self._matrix(tensor, [tensor], lambda matrices: matrices[0], choice)

    def vector(self, name: str, tensors: Sequence[str]) -> BufferHandle:
        """Declares norm weights or biases of the checkpoint, one after the other, kept as f32."""
        parts = [self._checkpoint.vector(tensor) for tensor in tensors]
        for tensor, part in zip(tensors, parts, strict=True):
            if not np.isfinite(part).all():
                raise _not_finite(tensor)
        return self._vector(name, np.concatenate(parts), tensors)

    def table(self, name: str, values: NDArray[np.float32]) -> BufferHandle:
        """Declares values that the recipe has computed, kept as f32."""
        return self._vector(name, values, [])

    def catalog(self) -> core_pb2.WeightCatalog:
        """Which tensor of the checkpoint went into which buffer, in which storage."""
        return core_pb2.WeightCatalog(version=CATALOG_VERSION, views=self._views)

    @property
    def nbytes(self) -> int:
        """Size of the resource."""
        return self._buffers.weights_nbytes

    def declared(self) -> Iterator[tuple[BufferHandle, Callable[[], Bytes]]]:
        """Each tensor in the order of the resource, and what gives its bytes."""
        return ((tensor.handle, tensor.content) for tensor in self._tensors)

    def content(self) -> Iterator[memoryview]:
        """The resource from its first byte to its last, packed piece by piece."""
        written = 0
        for tensor in self._tensors:
            packed = tensor.content()
            if packed.nbytes != tensor.handle.nbytes:
                raise ContractError(
                    f"packed to {packed.nbytes} bytes, declared with {tensor.handle.nbytes}",
                    where=tensor.handle.name,
                )
            yield memoryview(bytes(tensor.handle.offset - written))
            yield packed.data
            written = tensor.handle.offset + tensor.handle.nbytes

    def _vector(
        self, name: str, values: NDArray[np.float32], tensors: Sequence[str]
    ) -> BufferHandle:
        handle = self._buffers.weight(name, pb.DTYPE_F32, pb.PACKING_PLAIN, values.shape)
        content = np.ascontiguousarray(values, "<f4").view(np.uint8)
        self._add(handle, lambda: content, tensors, _VECTOR_STORAGE)
        return handle

    def _matrix(
        self,
        name: str,
        tensors: Sequence[str],
        join: Join,
        choice: WeightStorage,
        run: int | None = None,
        *,
        pairs: bool = False,
    ) -> Matrix:
        # Only the form is kept: readers may copy rows, so matrices are read again when packed.
        forms = [(m.storage, m.shape) for m in map(self._checkpoint.matrix, tensors)]
        outputs = sum(shape[0] for _, shape in forms)
        width = forms[0][1][1]
        convert, storage = self._conversion(name, {s for s, _ in forms}, width, choice)
        if run is not None and run % BLOCK and storage.block_elements > 1:
            kept = "F32" if choice is WeightStorage.AS_STORED else "bf16"
            self.notes.append(
                f"{name} reads rows written {run} elements at a time, no multiple of {BLOCK}: kept"
                f" as {kept} instead of {storage.value}"
            )
            convert, storage = (
                (_exact_f32, Storage.F32)
                if choice is WeightStorage.AS_STORED
                else (_as_bf16, Storage.BF16)
            )
        bf16_rows = self._by_rows and storage is Storage.BF16
        if bf16_rows and width % ROW_GROUP:
            raise CheckpointError(
                f"rows of {width} elements can't be copied 16 bytes at a time",
                where=name,
                remedy=f"A GPU takes widths that are multiples of {ROW_GROUP}; prepare this model"
                " for cpu",
            )
        pairs = pairs and not self._by_rows and pair_packing.fits(storage, width, run)
        packing = storage.packing
        if bf16_rows:
            packing = pb.PACKING_ROWS_BF16
        elif pairs:
            packing = pb.PACKING_TILE16_Q4_PAIRS
        handle = self._buffers.weight(
            name, _DTYPE.get(storage, pb.DTYPE_U8), packing, (outputs, width)
        )

        def content() -> Bytes:
            joined = join([self._converted(t, convert) for t in tensors])
            if self._by_rows:
                return joined.pack_as_rows().data
            return pack_pairs(joined.row_bytes, width) if pairs else joined.pack().data

        self._add(handle, content, tensors, storage.value)
        return Matrix(handle, outputs, width)

    def _converted(
        self, tensor: str, convert: Callable[[StoredMatrix], StoredMatrix]
    ) -> StoredMatrix:
        """A matrix of the checkpoint as the core keeps it. Raises CheckpointError naming it where
        it holds what isn't finite, or a value too large for the core's storage."""
        stored = self._checkpoint.matrix(tensor)
        if not stored.is_finite():
            raise _not_finite(tensor)
        converted = convert(stored)
        if converted is not stored and not converted.is_finite():
            raise CheckpointError(
                f"holds a value too large for {converted.storage.value}",
                where=f"tensor `{tensor}`",
                remedy="Choose --storage as-stored",
            )
        return converted

    def _conversion(
        self, name: str, storages: set[Storage], width: int, choice: WeightStorage
    ) -> tuple[Callable[[StoredMatrix], StoredMatrix], Storage]:
        """How each matrix is changed before they are joined, and what they are then."""
        if self._by_rows and choice is WeightStorage.AS_STORED:
            if storages != {Storage.BF16}:
                kinds = ", ".join(sorted(storage.value for storage in storages))
                self.notes.append(f"{name} is stored as {kinds}: kept as bf16")
            return _as_bf16, Storage.BF16
        if choice is not WeightStorage.AS_STORED:
            storage = storage_of(choice, by_rows=self._by_rows)
            if width % storage.width_multiple:
                self.notes.append(
                    f"{name} is {width} wide, no multiple of {storage.width_multiple}: kept as "
                    f"bf16 instead of {choice.value}"
                )
                choice, storage = WeightStorage.BF16, Storage.BF16
            by_rows = self._by_rows
            return (lambda matrix: store_as(matrix, choice, by_rows=by_rows)), storage
        if len(storages) == 1:
            (storage,) = storages
            return (lambda matrix: matrix), storage
        # Block formats of different kinds have no common form but their exact values.
        kinds = ", ".join(sorted(storage.value for storage in storages))
        self.notes.append(f"{name} joins {kinds}: kept as F32, which holds their exact values")
        return _exact_f32, Storage.F32

    def _add(
        self,
        handle: BufferHandle,
        content: Callable[[], Bytes],
        tensors: Sequence[str],
        storage: str,
    ) -> None:
        self._tensors.append(_Tensor(handle, content))
        self._views.extend(
            core_pb2.WeightView(tensor=tensor, buffer=handle.name, storage=storage)
            for tensor in tensors
        )


def _not_finite(tensor: str) -> CheckpointError:
    return CheckpointError(
        "holds a value that isn't a finite number",
        where=f"tensor `{tensor}`",
        remedy="The checkpoint is damaged; fetch it again",
    )


def _as_bf16(matrix: StoredMatrix) -> StoredMatrix:
    return store_as(matrix, WeightStorage.BF16)


def _exact_f32(matrix: StoredMatrix) -> StoredMatrix:
    return StoredMatrix.from_elements(Storage.F32, matrix.dequantise())
