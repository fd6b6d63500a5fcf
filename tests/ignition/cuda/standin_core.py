"""Loads a prepared cuda core with the stand-in for the driver, and runs rounds of each program:
`python -m tests.ignition.cuda.standin_core CORE PUBLIC_KEY_HEX`, a child of
`test_cross_preparation`.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from helios.core import ResourceKind, open_core
from helios.runtime.device import DeviceOptions
from helios.runtime.every_program import run_every_program
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import check_oracle
from helios.runtime.targets import deployed_rank, read_manifest, read_modules
from helios.schema import core_pb2
from tests.standin_driver.played import PlayedCudaDevice

TARGET = "cuda:sm_90"


def main() -> None:
    folder, key = sys.argv[1:]
    core = open_core(Path(folder), accept="tests", publisher_key=bytes.fromhex(key))
    rank = deployed_rank(core, TARGET)
    cuda = read_manifest(core, rank).cuda
    device = PlayedCudaDevice(TARGET, DeviceOptions(), cuda, read_modules(core, rank))
    with closing(ModelRuntime.load(core, target=TARGET, device=device)) as runtime:
        wire = core.read_resource(core.decoded.oracle_resource, ResourceKind.ORACLE)
        check_oracle(runtime, core_pb2.Oracle.FromString(wire))
        run_every_program(runtime)
    print(f"{len(runtime.geometry.programs)} programs ran")


if __name__ == "__main__":
    main()
