"""The error of everything that reads checkpoints."""

from __future__ import annotations

from helios.errors import HeliosError


class CheckpointError(HeliosError):
    """A checkpoint is missing, damaged, contradicts itself or uses something unsupported."""
