"""Cores on disk: opening, verifying, authorizing and reading them.

`open_core` is the one way in; `format` holds what the writer shares.
"""

from helios.core.opened_core import OpenedCore, open_core
from helios.core.resources import ResourceKind

__all__ = ["OpenedCore", "ResourceKind", "open_core"]
