"""Start-up reads the core and nothing beside it: no checkpoint's configuration, no model card."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helios.core import format as core_format
from tests.engine.conftest import tiny_core

__all__ = ["tiny_core"]

# What a checkpoint has beside its weights; each is put next to the core's own files.
DECOYS = ("config.json", "generation_config.json", "tokenizer_config.json", "README.md")
# Loads model and frontend as the server does, and prints every file that was opened meanwhile.
LOADING = """
import json, os, sys
from helios.frontend.bootstrap import Bootstrap
from helios.worker.options import WorkerOptions
from helios.worker.startup import load_model

opened = []
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        opened.append(os.path.realpath(os.fsdecode(arguments[0])))
sys.addaudithook(note)
core = sys.argv[1]
model = load_model(WorkerOptions(core=core, accept="tests", threads=1))
frontend = Bootstrap.load(model.core)
frontend.tokenizer.encode("hello")
model.close()
print(json.dumps(opened))
"""


@pytest.mark.clause("BOOT-2")
def test_nothing_but_the_core_is_read(tiny_core: Path, tmp_path: Path) -> None:
    core = tmp_path / "core"
    shutil.copytree(tiny_core, core)
    for decoy in DECOYS:
        for folder in (core, tmp_path):
            (folder / decoy).write_text('{"eos_token_id": 5, "max_position_embeddings": 1}')
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(core)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
    opened = [Path(path) for path in json.loads(done.stdout)]
    of_the_core = {path for path in opened if path.is_relative_to(tmp_path)}
    resources = core / core_format.RESOURCE_FOLDER
    expected = {core / core_format.ENVELOPE_FILE, core / core_format.LOCATIONS_FILE}
    assert core / core_format.ENVELOPE_FILE in of_the_core
    assert of_the_core <= expected | set(resources.iterdir())
    # Manifest, tokenizer, oracle and weights at the least; the rest is Python's own, the kernel's
    # and the trust store.
    assert len(of_the_core & set(resources.iterdir())) >= 4
    others = [path for path in opened if path not in of_the_core]
    assert not [path for path in others if path.name in DECOYS]
