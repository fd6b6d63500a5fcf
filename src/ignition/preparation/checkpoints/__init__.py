"""Readers of checkpoints. `open_checkpoint` is the way in; `checkpoint` says what comes out."""

from __future__ import annotations

from pathlib import Path

from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.checkpoints.gguf_checkpoint import GgufCheckpoint
from ignition.preparation.checkpoints.huggingface import HuggingFaceCheckpoint
from ignition.preparation.errors import CheckpointError

__all__ = ["Checkpoint", "open_checkpoint"]


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a GGUF file or a Hugging Face folder; raises CheckpointError if it is neither."""
    if path.is_dir():
        return HuggingFaceCheckpoint(path)
    if not path.exists():
        raise CheckpointError("there is no such file or folder", where=str(path))
    return GgufCheckpoint(path)
