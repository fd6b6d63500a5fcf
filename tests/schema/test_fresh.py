"""The generated schema modules are those that schema/*.proto gives."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "src" / "helios" / "schema"


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None,
    reason="needs the protobuf compiler of the dev extra: make dev",
)
def test_generated_modules_are_fresh(tmp_path: Path) -> None:
    subprocess.run(
        [ROOT / "schema" / "generate.sh", tmp_path],
        check=True,
        env={**os.environ, "PYTHON": sys.executable},
    )
    fresh = sorted((tmp_path / "helios" / "schema").iterdir())
    assert fresh
    for file in fresh:
        assert filecmp.cmp(file, GENERATED / file.name, shallow=False), file.name


def test_every_enum_starts_unspecified() -> None:
    from google.protobuf.descriptor import FileDescriptor

    from helios.schema import contract_pb2, core_pb2, execution_pb2

    files: list[FileDescriptor] = [
        module.DESCRIPTOR for module in (contract_pb2, execution_pb2, core_pb2)
    ]
    enums = [enum for file in files for enum in file.enum_types_by_name.values()]
    assert len(enums) > 10
    for enum in enums:
        assert enum.values_by_number[0].name.endswith("_UNSPECIFIED"), enum.full_name
