"""`helios` whose server starts the played worker: takes the arguments of `helios serve`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from helios.cli import main
from helios.worker import launch

_WORKER = (sys.executable, str(Path(__file__).parent / "played_worker.py"))

if __name__ == "__main__":
    launch.start = partial(launch.start, command=_WORKER)
    main()
