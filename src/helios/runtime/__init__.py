"""Execution of a prepared model: from a core's manifest to rounds that run.

`NativeModel.load` loads one. The names here are resolved when they are used, since most importers
of `helios.runtime.*` want a data type and no device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from helios.runtime.capacities import Capacities
    from helios.runtime.device import DeviceOptions
    from helios.runtime.native_model import NativeModel
    from helios.runtime.ranks import RankPeers

__all__ = ["Capacities", "DeviceOptions", "NativeModel", "RankPeers"]

_HOMES: Final = {
    "Capacities": "helios.runtime.capacities",
    "DeviceOptions": "helios.runtime.device",
    "NativeModel": "helios.runtime.native_model",
    "RankPeers": "helios.runtime.ranks",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
