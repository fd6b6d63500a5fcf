"""The model worker with a played cuda device: `played_worker.py FD[,DOOR]`, as the real one is
started. The stand-in driver fails as the environment says."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from helios.runtime.devices.cuda import device
from helios.worker.process import main
from tests.standin_driver.played import PlayedCudaDevice

if __name__ == "__main__":
    device.CudaDevice = PlayedCudaDevice  # type: ignore[misc]
    sys.exit(main(sys.argv[1:], time.monotonic_ns()))
