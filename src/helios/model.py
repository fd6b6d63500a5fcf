"""The prepared contract under the specification's name: `helios.model.PreparedContract`."""

from __future__ import annotations

from helios.contract import PreparedContract

__all__ = ["PreparedContract"]
