"""What a checkpoint becomes before any weight is read: programs, modules, contract, frontend.

`prepare` and `weightless` share it: `capture` records and compiles, `add_programs` and
`add_frontend` write the executable resources, `deployment` is the message that refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from helios.contract import decode
from helios.runtime.manifest_checks import check_manifest, check_modules
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import contract_pb2, core_pb2, execution_pb2
from ignition import recipes
from ignition.capture.recorder import Recorder
from ignition.preparation import chat_syntax, serving, template_choice
from ignition.preparation.chat_syntax import ChatSyntax
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.cuda_modules import compiler_version, make_nodes
from ignition.preparation.export import CoreWriter, serialized
from ignition.preparation.extents import Extents
from ignition.preparation.options import Options
from ignition.preparation.progress import Progress
from ignition.preparation.template_choice import ChosenTemplate
from ignition.preparation.weights import WeightSet

_TOKENIZER: Final = "tokenizer"
_TEMPLATE: Final = "template"
# A draft's is known when it is filled.
_DRAFT_IDENTITY: Final = "draft"


@dataclass(frozen=True)
class Captured:
    """A checkpoint's programs and what else is known before its weights are read; `modules` are
    cubins by resource id, `compiler` made them."""

    recipe: str
    extents: Extents
    template: ChosenTemplate
    syntax: ChatSyntax
    weights: WeightSet
    model: contract_pb2.ModelContract
    manifest: execution_pb2.ExecutionManifest
    modules: Mapping[str, bytes] = field(default_factory=dict)
    compiler: str = serving.NO_COMPILER


def weight_resource(options: Options) -> str:
    """The id of the weights."""
    return f"weights.{options.target.name}"


def _manifest_resource(options: Options) -> str:
    return f"manifest.{options.target.name}"


def capture(checkpoint: Checkpoint, options: Options, progress: Progress) -> Captured:
    """Records the programs and compiles what they need. Raises a HeliosError for what the
    checkpoint or the options don't allow."""
    recipe = recipes.choose(options.recipe, checkpoint.family)
    extents = options.extents(checkpoint.parameters.context_tokens)
    recorder = Recorder(
        options.target, weight_resource=weight_resource(options), tuning=options.tuning
    )
    with progress.stage("recording programs"):
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
    for note in (*gathered_notes(weights.notes), template.note):
        if note is not None:
            progress.note(note)
    known = (recipe.name, extents, template, syntax, weights, model)
    if not options.target.is_cuda:
        return Captured(*known, recorder.manifest())
    made = make_nodes(recorder, progress)
    return Captured(
        *known, recorder.manifest(made.target), made.content, compiler_version(options.target)
    )


def gathered_notes(notes: Sequence[str]) -> list[str]:
    """Notes that begin with a matrix's name; of those that say the same of several, one."""
    named: dict[str, list[str]] = {}
    for note in notes:
        name, _, said = note.partition(" ")
        named.setdefault(said, []).append(name)
    return [
        f"{names[0]} {said}"
        if len(names) == 1
        else f"{names[0]}, and {len(names) - 1} more: {said}"
        for said, names in named.items()
    ]


def add_programs(writer: CoreWriter, captured: Captured, options: Options) -> None:
    """Writes the manifest and its modules. Cached history depends on them and on the weights."""
    writer.add_frame(
        _manifest_resource(options),
        core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST,
        serialized(captured.manifest),
    )
    for module, content in captured.modules.items():
        writer.add_frame(module, core_pb2.RESOURCE_KIND_MODULE, content)


def deployment(
    captured: Captured, checkpoint: Checkpoint, options: Options, cache_identity: str
) -> core_pb2.DeploymentBody:
    """The body that refers to weights, programs and frontend. Raises ContractError where Helios
    would refuse to load them."""
    contract = serving.serving_contract(
        captured.model,
        captured.extents,
        options.sampling.over(checkpoint.generation_defaults),
        served_id=options.served_id,
        aliases=options.aliases,
        cache_identity=cache_identity,
    )
    _check(captured, contract)
    body = core_pb2.DeploymentBody(
        contract=contract,
        tokenizer_resource=_TOKENIZER,
        targets=[
            core_pb2.DeploymentTarget(
                name=options.target.name,
                ranks=[
                    core_pb2.RankResources(
                        manifest_resource=_manifest_resource(options),
                        weight_resources=[weight_resource(options)],
                        module_resources=captured.modules,
                        weight_catalog=captured.weights.catalog(),
                    )
                ],
            )
        ],
    )
    if captured.syntax.template is not None:
        body.template_resource = _TEMPLATE
    return body


def _check(captured: Captured, contract: contract_pb2.ServingContract) -> None:
    """What Helios checks at load: not every core replays an oracle here, for which it is loaded."""
    known = contract_pb2.ServingContract()
    known.CopyFrom(contract)
    known.cache_identity = known.cache_identity or _DRAFT_IDENTITY
    manifest = decode_manifest(captured.manifest)
    check_manifest(manifest, decode(known))
    check_modules(manifest, captured.modules)


def add_frontend(writer: CoreWriter, captured: Captured, checkpoint: Checkpoint) -> None:
    """Writes tokenizer and template."""
    writer.add_frame(_TOKENIZER, core_pb2.RESOURCE_KIND_TOKENIZER, checkpoint.tokenizer_json())
    template = captured.syntax.template
    if template is not None:
        writer.add_frame(_TEMPLATE, core_pb2.RESOURCE_KIND_CHAT_TEMPLATE, template.encode())
