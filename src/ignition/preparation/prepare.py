"""From a checkpoint to a core: the order of the steps, and what each is given.

Capture, pack, replay the oracle, sign. The command line calls `prepare`; so do tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios import contract as serving_schema
from helios.runtime.model_runtime import ModelRuntime
from helios.schema import contract_pb2, core_pb2, execution_pb2
from ignition.preparation import capturing, oracle, serving
from ignition.preparation.capturing import Captured
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.cuda_modules import need_compiler
from ignition.preparation.export import (
    CoreWriter,
    check_destination,
    new_folder,
    serialized,
)
from ignition.preparation.options import TUNING_ON, Options
from ignition.preparation.progress import Progress

__all__ = ["TUNING_ON", "Options", "Progress", "prepare"]

_ORACLE_TARGET: Final = "reference"
_ORACLE: Final = "oracle"


def prepare(
    source: Path,
    destination: Path,
    options: Options,
    key: Ed25519PrivateKey,
    progress: Progress,
    *,
    replace: bool = False,
) -> None:
    """Writes the core of a checkpoint. Raises a HeliosError and leaves nothing behind where the
    checkpoint, the options or the destination don't allow it."""
    options.check()
    check_destination(destination, replace=replace)
    if options.target.is_cuda:
        need_compiler()
    with progress.stage("reading the checkpoint"):
        checkpoint = open_checkpoint(source)
        sources = checkpoint.sources
    captured = capturing.capture(checkpoint, options, progress)
    with new_folder(destination, replace=replace) as folder:
        writer = CoreWriter(folder)
        deployment = _write_resources(writer, checkpoint, captured, options, progress)
        deployment.rebuild.CopyFrom(
            serving.rebuild_manifest(
                captured.recipe,
                options.texts(captured.extents, captured.syntax, captured.template.family),
                sources,
                compiler=captured.compiler,
            )
        )
        publisher = core_pb2.Publisher(
            namespace=options.namespace, licence_terms=options.licence_terms
        )
        writer.finish(publisher, deployment, key, options.carrier)


def _write_resources(
    writer: CoreWriter,
    checkpoint: Checkpoint,
    captured: Captured,
    options: Options,
    progress: Progress,
) -> core_pb2.DeploymentBody:
    """Writes weights and frames; returns the body that refers to them."""
    resource = capturing.weight_resource(options)
    with progress.stage("packing weights", captured.weights.nbytes) as advance:
        path = writer.add_weights(resource, _counted(captured.weights.content(), advance))
    capturing.add_programs(writer, captured, options)
    identity = writer.content_digest().hex()
    deployment = capturing.deployment(captured, checkpoint, options, identity)
    capturing.add_frontend(writer, captured, checkpoint)
    if options.oracle:
        weights = {resource: np.memmap(path, np.uint8, "r").data}
        prompts = oracle.prompts(checkpoint, captured.template.text)
        answers = _record_oracle(prompts, deployment.contract, captured.manifest, weights, progress)
        deployment.oracle_resource = _ORACLE
        writer.add_frame(_ORACLE, core_pb2.RESOURCE_KIND_ORACLE, serialized(answers))
    return deployment


def _record_oracle(
    prompts: list[list[int]],
    contract: contract_pb2.ServingContract,
    manifest: execution_pb2.ExecutionManifest,
    weights: dict[str, memoryview],
    progress: Progress,
) -> core_pb2.Oracle:
    runtime = ModelRuntime.from_parts(
        serving_schema.decode(contract), manifest, weights, target=_ORACLE_TARGET
    )
    try:
        with progress.stage("replaying the oracle", len(prompts)) as advance:
            answers = oracle.record(runtime, prompts, advance)
    finally:
        runtime.close()
    if not answers.cases:
        progress.note(
            "no prompt has an answer clear enough for the oracle: the core holds none, and Helios "
            "can't prove at start-up that it computes what was prepared"
        )
    return answers


def _counted(parts: Iterable[memoryview], advance: Callable[[int], None]) -> Iterator[memoryview]:
    done = 0
    for part in parts:
        yield part
        done += part.nbytes
        advance(done)
