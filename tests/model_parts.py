"""Prepares checkpoints in memory and loads them, without writing a core.

What Ignition does between reading a checkpoint and signing, minus the oracle: for tests of what
programs compute. Tests of cores prepare real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from helios import contract as serving_contracts
from helios.contract.model import PreparedContract
from helios.runtime.capacities import Capacities
from helios.runtime.device import Device, DeviceOptions
from helios.runtime.model_runtime import ModelRuntime
from helios.schema import execution_pb2
from ignition import recipes
from ignition.capture.recorder import Recorder
from ignition.capture.target import CPU, Target
from ignition.preparation import chat_syntax, serving
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.paged_text import Extents
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.weights import WeightSet
from tests.checkpoints import write_huggingface

WEIGHTS = "weights"
TINY_EXTENTS = Extents(
    32,
    (32, 128),
    (1, 2, 4, 8, 16, 32),
    512,
    mixed=(32, 128),
    scored_prefill=(32, 128),
    restore=(32,),
)


@dataclass(frozen=True)
class ModelParts:
    """A prepared model: what `ModelRuntime.from_parts` takes, and the weights' catalogue."""

    contract: PreparedContract
    manifest: execution_pb2.ExecutionManifest
    weights: memoryview
    catalog: dict[str, str]  # canonical tensor name → buffer

    def load(
        self,
        target: str = "cpu",
        *,
        instruction_set: str | None = None,
        threads: int | None = 1,
        request_slots: int | None = None,
        cache_tokens: int | None = None,
        snapshots: int = 0,
        device: Device | None = None,
    ) -> ModelRuntime:
        """A runtime over these parts; `cache_tokens` is what the cache's pages hold in all,
        `device` replaces the target's own."""
        nbytes = None
        if cache_tokens is not None:
            page_tokens = self.contract.model.cache.page_tokens
            pages = -(-cache_tokens // page_tokens)
            nbytes = pages * self._row_nbytes(execution_pb2.LEADING_COUNT_CACHE_PAGES)
            nbytes += snapshots * self._row_nbytes(execution_pb2.LEADING_COUNT_SNAPSHOT_ROWS)
        return ModelRuntime.from_parts(
            self.contract,
            self.manifest,
            {WEIGHTS: self.weights},
            target=target,
            options=DeviceOptions(threads=threads, instruction_set=instruction_set),
            capacities=Capacities(
                request_slots=request_slots, cache_nbytes=nbytes, snapshot_rows=snapshots
            ),
            device=device,
        )

    def _row_nbytes(self, leading: execution_pb2.LeadingCount) -> int:
        """Bytes of one row over all buffers with this leading count."""
        return sum(b.nbytes for b in self.manifest.buffers if b.leading == leading)


def capture(
    source: Path,
    storage: WeightStorage = WeightStorage.AS_STORED,
    extents: Extents = TINY_EXTENTS,
    target: Target = CPU,
) -> ModelParts:
    """Records and packs a checkpoint (folder or GGUF file)."""
    checkpoint = open_checkpoint(source)
    context = min(extents.max_context_tokens, checkpoint.parameters.context_tokens)
    extents = replace(extents, max_context_tokens=context, page_tokens=target.page_tokens)
    recorder = Recorder(target, weight_resource=WEIGHTS)
    weights = WeightSet(recorder.buffers, checkpoint, storage, target)
    recipe = recipes.choose("auto", checkpoint.family)
    syntax = chat_syntax.choose(checkpoint.chat_template(), checkpoint.template_tokens)
    model = recipe.capture(checkpoint, recorder, weights, extents, syntax)
    contract = serving.serving_contract(
        model,
        extents,
        checkpoint.generation_defaults,
        served_id="test",
        aliases=(),
        cache_identity="test",
    )
    content = np.frombuffer(b"".join(weights.content()), np.uint8)
    catalog = {view.tensor: view.buffer for view in weights.catalog().views}
    return ModelParts(
        serving_contracts.decode(contract), recorder.manifest(), content.data, catalog
    )


def capture_tiny(
    folder: Path, variant: str, storage: WeightStorage = WeightStorage.BF16
) -> ModelParts:
    """A tiny random checkpoint of a variant of tests/checkpoints.py, written under `folder`."""
    return capture(write_huggingface(folder / variant, variant), storage)
