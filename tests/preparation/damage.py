"""Hostile files: bytes and fields that differ from a good checkpoint's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.tensor_names import tensor_shapes
from ignition.preparation.errors import CheckpointError


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Applies `edit` to the object in a JSON file."""
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def read_everything(path: Path) -> None:
    """Opens a checkpoint and reads all that a recipe could ask for."""
    checkpoint = open_checkpoint(path)
    for name, shape in tensor_shapes(checkpoint.parameters).items():
        if len(shape) == 2:
            checkpoint.matrix(name).dequantise()
        else:
            checkpoint.vector(name)
    assert checkpoint.eos_ids
    checkpoint.tokenizer_json()
    checkpoint.chat_template()
    assert checkpoint.template_tokens is not None
    assert checkpoint.generation_defaults is not None


def opens_or_is_refused(path: Path) -> bool:
    """True if all of it can be read, False for CheckpointError; anything else is a bug."""
    try:
        read_everything(path)
    except CheckpointError:
        return False
    return True
