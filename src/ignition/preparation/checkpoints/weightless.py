"""A checkpoint folder without weights: configuration, tokenizer, template, and no tensor.

It says which tensors such a model has, so that its programs can be recorded; their content is
drawn later (`ignition fill`). Norms are one and biases zero.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.checkpoints.checkpoint import SourceFile
from ignition.preparation.checkpoints.files import describe_sources
from ignition.preparation.checkpoints.huggingface import HuggingFaceFolder
from ignition.preparation.checkpoints.tensor_names import tensor_shapes
from ignition.preparation.packing import Storage
from ignition.preparation.stored_matrix import StoredMatrix


class WeightlessCheckpoint(HuggingFaceFolder):
    """Implements `Checkpoint`; every matrix is bf16, and its bytes are nobody's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._shapes = tensor_shapes(self.parameters)

    def matrix(self, name: str) -> StoredMatrix:
        """A matrix of the right form, all zeros, which takes no memory."""
        outputs, width = self._shapes[name]
        rows = np.broadcast_to(np.zeros(1, np.uint8), (outputs, Storage.BF16.row_nbytes(width)))
        return StoredMatrix(Storage.BF16, (outputs, width), rows)

    def vector(self, name: str) -> NDArray[np.float32]:
        """Ones for a norm, zeros for a bias."""
        (width,) = self._shapes[name]
        return np.full(width, 1.0 if name.endswith("norm") else 0.0, np.float32)

    @property
    def sources(self) -> tuple[SourceFile, ...]:
        """See `Checkpoint.sources`."""
        return describe_sources(path for path in self.other_files() if path.exists())
