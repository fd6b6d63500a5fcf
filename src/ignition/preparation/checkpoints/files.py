"""Files of a checkpoint: mapped read-only, and hashed for the rebuild manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ignition.preparation.checkpoints.checkpoint import SourceFile
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import Bytes


def map_file(path: Path) -> Bytes:
    """The bytes of a file as a read-only mapping: `u8 [size]`, empty for an empty file."""
    try:
        if path.stat().st_size == 0:
            return np.empty(0, np.uint8)
        return np.asarray(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise CheckpointError(
            f"can't be read: {error.strerror}",
            where=str(path),
            remedy="The checkpoint must be complete and readable",
        ) from error


def describe_sources(paths: Iterable[Path]) -> tuple[SourceFile, ...]:
    """Name, size and SHA-256 of each file, sorted by name."""
    sources = []
    for path in sorted(paths, key=lambda path: path.name):
        content = map_file(path)
        digest = hashlib.sha256(content.data).digest()
        sources.append(SourceFile(path.name, content.nbytes, digest))
    return tuple(sources)
