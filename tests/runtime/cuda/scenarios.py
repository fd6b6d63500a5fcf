"""What tests of the cuda device do, each in a process of its own that has the stand-in for its
driver: `python -m tests.runtime.cuda.scenarios NAME`. `test_cuda_device` runs them all."""

from __future__ import annotations

import sys

from tests.runtime.cuda import (  # noqa: F401 (they register themselves)
    failure_scenarios,
    loading_scenarios,
    round_scenarios,
)
from tests.runtime.cuda.loaded import SCENARIOS

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
