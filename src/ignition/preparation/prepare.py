"""From a checkpoint to a core: the order of the steps, and what each is given.

Capture, pack, replay the oracle, sign. The command line calls `prepare`; so do tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios import contract as serving_schema
from helios.core.format import NAMESPACE_LIMIT
from helios.errors import ContractError
from helios.runtime.model_runtime import ModelRuntime
from helios.schema import contract_pb2, core_pb2, execution_pb2
from ignition import recipes
from ignition.capture.recorder import Recorder
from ignition.preparation import oracle, serving
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import (
    NO_RECOMMENDATIONS,
    Checkpoint,
    GenerationDefaults,
)
from ignition.preparation.export import (
    Carrier,
    CoreWriter,
    check_destination,
    new_folder,
    serialized,
)
from ignition.preparation.paged_text import (
    DEFAULT_DECODE_BATCHES,
    DEFAULT_MAX_ACTIVE,
    DEFAULT_PREFILL_EXTENTS,
    Extents,
)
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.sampling import text_of as sampling_text
from ignition.preparation.weights import WeightSet

TARGETS: Final = ("cpu",)
TUNING_ON: Final = "on"  # of the rebuild manifest's option "tuning"
_ORACLE_TARGET: Final = "reference"
_TOKENIZER: Final = "tokenizer"
_TEMPLATE: Final = "template"
_ORACLE: Final = "oracle"


@dataclass(frozen=True)
class Options:
    """What a preparation may choose; None is the default that `extents` resolves."""

    namespace: str
    served_id: str
    aliases: tuple[str, ...] = ()
    licence_terms: str = ""
    recipe: str = "auto"
    storage: WeightStorage = WeightStorage.AS_STORED
    target: str = "cpu"
    carrier: Carrier = Carrier.PAYLOAD
    max_active: int = DEFAULT_MAX_ACTIVE
    prefill: tuple[int, ...] = DEFAULT_PREFILL_EXTENTS
    decode: tuple[int, ...] | None = None
    max_context: int | None = None
    sampling: GenerationDefaults = NO_RECOMMENDATIONS
    tuning: bool = False

    def check(self) -> None:
        """Refuses what no checkpoint could make right, naming the command's option. Raises
        ContractError, or CheckpointError for the recipe."""
        if not self.namespace:
            raise ContractError("is empty", where="--namespace", remedy="Name the publisher")
        if len(self.namespace) > NAMESPACE_LIMIT:
            raise ContractError(
                f"has {len(self.namespace)} characters",
                where="--namespace",
                remedy=f"Give at most {NAMESPACE_LIMIT}",
            )
        names = (self.served_id, *self.aliases)
        if not all(names) or len(set(names)) != len(names):
            raise ContractError(
                f"names must differ and not be empty, got {', '.join(map(repr, names))}",
                where="--served-id, --alias",
                remedy="Give each name once",
            )
        if self.target not in TARGETS:
            raise ContractError(
                f"there is no target {self.target!r}",
                where="--target",
                remedy=f"Targets are: {', '.join(TARGETS)}",
            )
        recipes.check_name(self.recipe)
        # The model's context length is still unknown: any stands in for it.
        self.extents(sys.maxsize)

    def extents(self, context_tokens: int) -> Extents:
        """The captured capacities for a model of this context length."""
        if self.max_context is not None and self.max_context > context_tokens:
            raise ContractError(
                f"{self.max_context} tokens are more than the model's {context_tokens}",
                where="--max-context",
                remedy="Choose a smaller context",
            )
        decode = self.decode
        if decode is None:
            fitting = {lanes for lanes in DEFAULT_DECODE_BATCHES if lanes < self.max_active}
            decode = tuple(sorted(fitting | {self.max_active}))
        return Extents(
            max_active=self.max_active,
            prefill=self.prefill,
            decode=decode,
            max_context_tokens=context_tokens if self.max_context is None else self.max_context,
        )


class Progress(Protocol):
    """Where a preparation reports to."""

    def stage(
        self, title: str, total: int | None = None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A step that begins; the function it gives takes how much of `total` is done."""

    def note(self, text: str) -> None:
        """Something the user should know."""


@dataclass(frozen=True)
class _Captured:
    recipe: str
    extents: Extents
    weights: WeightSet
    model: contract_pb2.ModelContract
    manifest: execution_pb2.ExecutionManifest


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
    for note in captured.weights.notes:
        progress.note(note)
    with new_folder(destination, replace=replace) as folder:
        writer = CoreWriter(folder)
        deployment = _write_resources(writer, checkpoint, captured, options, progress)
        deployment.rebuild.CopyFrom(
            serving.rebuild_manifest(captured.recipe, _option_texts(options, captured), sources)
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
        weight_resource=_weight_resource(options.target),
        tuning=options.tuning,
    )
    weights = WeightSet(recorder.buffers, checkpoint, options.storage)
    model = recipe.capture(checkpoint, recorder, weights, extents)
    return _Captured(recipe.name, extents, weights, model, recorder.manifest())


def _write_resources(
    writer: CoreWriter,
    checkpoint: Checkpoint,
    captured: _Captured,
    options: Options,
    progress: Progress,
) -> core_pb2.DeploymentBody:
    """Writes weights and frames; returns the body that refers to them."""
    weight_resource = _weight_resource(options.target)
    manifest_resource = f"manifest.{options.target}"
    with progress.stage("packing weights", captured.weights.nbytes) as advance:
        path = writer.add_weights(weight_resource, _counted(captured.weights.content(), advance))
    writer.add_frame(
        manifest_resource,
        core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST,
        serialized(captured.manifest),
    )
    # Cached history depends on the weights and on the launches, hence on these two.
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
        oracle_resource=_ORACLE,
        targets=[
            core_pb2.DeploymentTarget(
                name=options.target,
                ranks=[
                    core_pb2.RankResources(
                        manifest_resource=manifest_resource,
                        weight_resources=[weight_resource],
                        weight_catalog=captured.weights.catalog(),
                    )
                ],
            )
        ],
    )
    writer.add_frame(_TOKENIZER, core_pb2.RESOURCE_KIND_TOKENIZER, checkpoint.tokenizer_json())
    template = checkpoint.chat_template()
    if template is not None:
        deployment.template_resource = _TEMPLATE
        writer.add_frame(_TEMPLATE, core_pb2.RESOURCE_KIND_CHAT_TEMPLATE, template.encode())
    weights = {weight_resource: np.memmap(path, np.uint8, "r").data}
    answers = _record_oracle(checkpoint, contract, captured.manifest, weights, progress)
    writer.add_frame(_ORACLE, core_pb2.RESOURCE_KIND_ORACLE, serialized(answers))
    return deployment


def _record_oracle(
    checkpoint: Checkpoint,
    contract: contract_pb2.ServingContract,
    manifest: execution_pb2.ExecutionManifest,
    weights: dict[str, memoryview],
    progress: Progress,
) -> core_pb2.Oracle:
    prompts = oracle.prompts(checkpoint)
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


def _option_texts(options: Options, captured: _Captured) -> dict[str, str]:
    """What the same preparation would be asked for, defaults resolved."""
    extents = captured.extents
    texts = {
        "storage": options.storage.value,
        "target": options.target,
        "max_active": str(extents.max_active),
        "prefill": ",".join(map(str, extents.prefill)),
        "decode": ",".join(map(str, extents.decode)),
        "max_context": str(extents.max_context_tokens),
    }
    # Said only where they are given: cores without them say what they always said.
    if options.sampling != NO_RECOMMENDATIONS:
        texts["sampling"] = sampling_text(options.sampling)
    if options.tuning:
        texts["tuning"] = TUNING_ON
    return texts
