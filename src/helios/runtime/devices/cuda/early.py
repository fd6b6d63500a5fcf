"""The driver started, and a GPU's context made, while the core is still being read.

Both take the driver hundreds of milliseconds in which it needs no interpreter. Nothing is decided
here: who opens the GPU finds its context there already, or finds what is wrong for himself.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from helios.errors import HeliosError
from helios.runtime.devices.cuda.driver import bindings, check


class EarlyContext:
    """Holds the primary context of a GPU from soon on until `close`."""

    def __init__(self, ordinal: int) -> None:
        pool = ThreadPoolExecutor(1, thread_name_prefix="helios-driver")
        self._opened = pool.submit(_retain, ordinal)
        pool.shutdown(wait=False)

    def close(self) -> None:
        """Lets go of it, for whoever else holds it: at once, or as soon as a slow driver has made
        it. Nobody waits for that: whoever needs the GPU has waited already."""
        self._opened.add_done_callback(_release)


def _release(opened: Future[tuple[Any, Any]]) -> None:
    with suppress(HeliosError):
        driver, device = opened.result()
        driver.cuDevicePrimaryCtxRelease(device)


def _retain(ordinal: int) -> tuple[Any, Any]:
    driver = bindings()
    device = check(driver, driver.cuDeviceGet(ordinal), "choosing a GPU")
    check(driver, driver.cuDevicePrimaryCtxRetain(device), "opening a context")
    return driver, device
