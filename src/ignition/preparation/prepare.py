"""From a checkpoint to a core: the order of the steps, and what each is given.

Capture, pack, replay the oracle, sign. The command line calls `prepare`; so do tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios import contract as serving_schema
from helios.runtime.model_runtime import ModelRuntime
from helios.schema import contract_pb2, core_pb2, execution_pb2
from ignition import recipes
from ignition.capture.recorder import Recorder
from ignition.preparation import chat_syntax, oracle, serving, template_choice
from ignition.preparation.chat_syntax import ChatSyntax
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.cuda_modules import compiler_version, make_nodes
from ignition.preparation.export import (
    CoreWriter,
    check_destination,
    new_folder,
    serialized,
)
from ignition.preparation.extents import Extents
from ignition.preparation.options import TUNING_ON, Options
from ignition.preparation.progress import Progress
from ignition.preparation.template_choice import ChosenTemplate
from ignition.preparation.weights import WeightSet

__all__ = ["TUNING_ON", "Options", "Progress", "prepare"]

_ORACLE_TARGET: Final = "reference"
_TOKENIZER: Final = "tokenizer"
_TEMPLATE: Final = "template"
_ORACLE: Final = "oracle"


@dataclass(frozen=True)
class _Captured:
    recipe: str
    extents: Extents
    template: ChosenTemplate
    syntax: ChatSyntax
    weights: WeightSet
    model: contract_pb2.ModelContract
    recorder: Recorder


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
    with progress.stage("reading the checkpoint"):
        checkpoint = open_checkpoint(source)
        sources = checkpoint.sources
    with progress.stage("recording programs"):
        captured = _capture(checkpoint, options)
    modules = make_nodes(captured.recorder, progress) if options.target.is_cuda else None
    manifest = captured.recorder.manifest(None if modules is None else modules.target)
    for note in (*captured.weights.notes, captured.template.note):
        if note is not None:
            progress.note(note)
    with new_folder(destination, replace=replace) as folder:
        writer = CoreWriter(folder)
        deployment = _write_resources(
            writer,
            checkpoint,
            captured,
            manifest,
            {} if modules is None else modules.content,
            options,
            progress,
        )
        deployment.rebuild.CopyFrom(
            serving.rebuild_manifest(
                captured.recipe,
                options.texts(captured.extents, captured.syntax, captured.template.family),
                sources,
                compiler=serving.NO_COMPILER
                if modules is None
                else compiler_version(options.target),
            )
        )
        publisher = core_pb2.Publisher(
            namespace=options.namespace, licence_terms=options.licence_terms
        )
        writer.finish(publisher, deployment, key, options.carrier)


def _capture(checkpoint: Checkpoint, options: Options) -> _Captured:
    recipe = recipes.choose(options.recipe, checkpoint.family)
    extents = options.extents(checkpoint.parameters.context_tokens)
    recorder = Recorder(
        options.target,
        weight_resource=_weight_resource(options.target.name),
        tuning=options.tuning,
    )
    weights = WeightSet(recorder.buffers, checkpoint, options.storage, options.target)
    template = template_choice.choose(
        checkpoint, options.template, options.tools, options.reasoning
    )
    syntax = chat_syntax.choose(
        template.text,
        checkpoint.template_tokens,
        tools=template.tools,
        reasoning=template.reasoning,
    )
    model = recipe.capture(checkpoint, recorder, weights, extents, syntax)
    return _Captured(recipe.name, extents, template, syntax, weights, model, recorder)


def _write_resources(
    writer: CoreWriter,
    checkpoint: Checkpoint,
    captured: _Captured,
    manifest: execution_pb2.ExecutionManifest,
    modules: Mapping[str, bytes],
    options: Options,
    progress: Progress,
) -> core_pb2.DeploymentBody:
    """Writes weights and frames; returns the body that refers to them."""
    weight_resource = _weight_resource(options.target.name)
    manifest_resource = f"manifest.{options.target.name}"
    with progress.stage("packing weights", captured.weights.nbytes) as advance:
        path = writer.add_weights(weight_resource, _counted(captured.weights.content(), advance))
    writer.add_frame(
        manifest_resource,
        core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST,
        serialized(manifest),
    )
    for module, content in modules.items():
        writer.add_frame(module, core_pb2.RESOURCE_KIND_MODULE, content)
    # Cached history depends on the weights and on the launches, hence on these.
    contract = serving.serving_contract(
        captured.model,
        captured.extents,
        options.sampling.over(checkpoint.generation_defaults),
        served_id=options.served_id,
        aliases=options.aliases,
        cache_identity=writer.content_digest().hex(),
    )
    deployment = core_pb2.DeploymentBody(
        contract=contract,
        tokenizer_resource=_TOKENIZER,
        targets=[
            core_pb2.DeploymentTarget(
                name=options.target.name,
                ranks=[
                    core_pb2.RankResources(
                        manifest_resource=manifest_resource,
                        weight_resources=[weight_resource],
                        module_resources=modules,
                        weight_catalog=captured.weights.catalog(),
                    )
                ],
            )
        ],
    )
    writer.add_frame(_TOKENIZER, core_pb2.RESOURCE_KIND_TOKENIZER, checkpoint.tokenizer_json())
    template = captured.syntax.template
    if template is not None:
        deployment.template_resource = _TEMPLATE
        writer.add_frame(_TEMPLATE, core_pb2.RESOURCE_KIND_CHAT_TEMPLATE, template.encode())
    if options.oracle:
        weights = {weight_resource: np.memmap(path, np.uint8, "r").data}
        prompts = oracle.prompts(checkpoint, captured.template.text)
        answers = _record_oracle(prompts, contract, manifest, weights, progress)
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


def _weight_resource(target: str) -> str:
    return f"weights.{target}"
