"""Tiny checkpoints and their captures, made once a test run and process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from helios.contract import decode
from helios.contract.model import PreparedContract
from helios.schema import contract_pb2, execution_pb2
from ignition import recipes
from ignition.capture.recorder import Recorder
from ignition.capture.target import CPU
from ignition.preparation import chat_syntax, serving
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.paged_text import Extents
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.weights import WeightSet
from tests.checkpoints import write_huggingface

EXTENTS = Extents(
    max_active=3,
    prefill=(2, 40),
    decode=(1, 3),
    max_context_tokens=100,
    mixed=(40,),
    scored_prefill=(2, 70),
    restore=(1, 3),
)


class Captured:
    """A variant captured without being written."""

    def __init__(self, checkpoint: Checkpoint, storage: WeightStorage, extents: Extents) -> None:
        self.checkpoint = checkpoint
        recorder = Recorder(CPU, weight_resource="weights.cpu")
        self.weights = WeightSet(recorder.buffers, checkpoint, storage)
        recipe = recipes.choose("auto", checkpoint.family)
        template, tokens = checkpoint.chat_template(), checkpoint.template_tokens
        self.syntax = chat_syntax.choose(template, tokens)
        self.model: contract_pb2.ModelContract = recipe.capture(
            checkpoint, recorder, self.weights, extents, self.syntax
        )
        self.manifest: execution_pb2.ExecutionManifest = recorder.manifest()
        self.serving = serving.serving_contract(
            self.model,
            extents,
            checkpoint.generation_defaults,
            served_id="tiny",
            aliases=("alias",),
            cache_identity="tiny",
        )

    @property
    def contract(self) -> PreparedContract:
        return decode(self.serving)

    def program(self, name: str) -> execution_pb2.Program:
        return next(p for p in self.manifest.programs if p.name == name)

    def buffer(self, name: str) -> execution_pb2.Buffer:
        return next(b for b in self.manifest.buffers if b.name == name)

    def operands(self, launch: execution_pb2.Launch) -> dict[str, str]:
        """Buffer names of a launch's operands, by operand name; absent ones are left out."""
        names = self.manifest.kernels[launch.kernel].operands
        return {
            name: self.manifest.buffers[operand.buffer - 1].name
            for name, operand in zip(names, launch.operands, strict=True)
            if operand.buffer
        }

    def attributes(self, launch: execution_pb2.Launch) -> dict[str, float]:
        use = self.manifest.kernels[launch.kernel]
        return {
            **dict(zip(use.integers, launch.integers, strict=True)),
            **dict(zip(use.floats, launch.floats, strict=True)),
        }

    def kernels(self, program: str) -> list[str]:
        return [self.manifest.kernels[x.kernel].name for x in self.program(program).launches]

    def launches(self, program: str, kernel: str) -> list[execution_pb2.Launch]:
        return [
            launch
            for launch in self.program(program).launches
            if self.manifest.kernels[launch.kernel].name == kernel
        ]


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a variant's checkpoint (bf16 safetensors)."""

    @cache
    def folder(variant: str) -> Path:
        return write_huggingface(tmp_path_factory.mktemp("checkpoints") / variant, variant)

    return folder


@pytest.fixture(scope="session")
def captured(checkpoint_folder: Callable[[str], Path]) -> Callable[..., Captured]:
    """A variant captured with `EXTENTS`."""

    @cache
    def capture(variant: str, storage: WeightStorage = WeightStorage.AS_STORED) -> Captured:
        return Captured(open_checkpoint(checkpoint_folder(variant)), storage, EXTENTS)

    return capture
