"""Cores on disk: opening, verifying, authorizing and reading them.

`open_core` is the one way in, `read_folder` its first step; `format` holds what the writer shares.
"""

from helios.core.opened_core import OpenedCore, open_core, read_folder
from helios.core.resources import ResourceKind

__all__ = ["OpenedCore", "ResourceKind", "open_core", "read_folder"]
