"""The page pool, which the prefix cache owns; see `helios.scheduler.cache.pages`."""

from __future__ import annotations

from helios.scheduler.cache.pages import PagePool

__all__ = ["PagePool"]
