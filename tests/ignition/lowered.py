"""A tiny model recorded for a cuda target with kernels that were never compiled: every launch of
the catalogue becomes one that takes its operands, scratch, counters and its capacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from helios.kernels.catalogue import CATALOGUE
from helios.schema import contract_pb2
from helios.schema import execution_pb2 as pb
from ignition import recipes
from ignition.capture import nodes
from ignition.capture.lowering import Kernels
from ignition.capture.recorder import Recorder
from ignition.capture.target import TARGETS
from ignition.kernels.cuda.launches import (
    ARCHITECTURES,
    Argument,
    At,
    CatalogueLaunch,
    Counters,
    CudaKernel,
    Fusion,
    Lowering,
    RowsOf,
    Scratch,
)
from ignition.preparation import chat_syntax, serving
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.extents import Extents
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.weights import WeightSet

TARGET = TARGETS["cuda:sm_90"]
EXTENTS = Extents(
    max_active=3,
    prefill=(2, 40),
    decode=(1, 3),
    max_context_tokens=100,
    mixed=(40,),
    scored_prefill=(2, 70),
    restore=(1, 3),
    page_tokens=TARGET.page_tokens,
)


def request(name: str, arguments: Mapping[str, str], **options: Any) -> Any:
    """What stands for a KernelRequest."""
    return SimpleNamespace(
        function=SimpleNamespace(__name__=name),
        arguments=arguments,
        identity=f"fake:{name}:{sorted(arguments.items())}",
        multiples_of_16=frozenset(options.get("multiples_of_16", ())),
    )


def any_kernel(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A kernel that takes what any may."""
    kinds = dict.fromkeys(sorted(launch.operands), "*i32")
    arguments: dict[str, Argument] = {name: At(name) for name in kinds}
    kinds |= {"scratch": "*bf16", "counters": "*i32", "capacity": "i32", "one": "fp32"}
    arguments |= {
        "scratch": Scratch("partial", pb.DTYPE_BF16, (3, 8)),
        "counters": Counters(len(launch.operands)),
        "capacity": launch.integers["capacity"],
        "one": 1,
    }
    if "state" in launch.operands:
        kinds["slots"] = "i32"
        arguments["slots"] = RowsOf("state", 128)
    return (CudaKernel(request(launch.kernel, kinds), (1, 2, 3), arguments),)


LOWERINGS: Mapping[str, Lowering] = {spec.name: any_kernel for spec in CATALOGUE}


def kernels(
    fusions: Sequence[Fusion] = (), lowerings: Mapping[str, Lowering] = LOWERINGS
) -> Kernels:
    """The kernels as a recording takes them."""
    return Kernels(lowerings, fusions, ARCHITECTURES[TARGET.architecture])


def compiled(lowered: nodes.Lowered, *, descriptors: Sequence[Any] = ()) -> dict[str, Any]:
    """What stands for the compiled requests."""
    return {
        name: nodes.Compiled(SimpleNamespace(descriptors=descriptors), 2 + number)  # type: ignore[arg-type]
        for number, name in enumerate(lowered.requests)
    }


def target(lowered: nodes.Lowered) -> pb.CudaTarget:
    """The functions of the compiled requests, behind those of transport."""
    names = ["stage", "record", *lowered.requests]
    functions = [
        pb.CudaFunction(module="module", function=f"f{number}", threads=32)
        for number in range(len(names))
    ]
    return pb.CudaTarget(functions=functions, stage=0, record=1)


@dataclass
class Recorded:
    """A checkpoint's programs of a cuda target."""

    checkpoint: Checkpoint
    extents: Extents = EXTENTS
    recorder: Recorder = field(init=False)
    weights: WeightSet = field(init=False)
    serving: contract_pb2.ServingContract = field(init=False)

    def __post_init__(self) -> None:
        checkpoint = self.checkpoint
        self.recorder = Recorder(TARGET, weight_resource="weights")
        self.weights = WeightSet(self.recorder.buffers, checkpoint, WeightStorage.AS_STORED, TARGET)
        recipe = recipes.choose("auto", checkpoint.family)
        syntax = chat_syntax.choose(checkpoint.chat_template(), checkpoint.template_tokens)
        model = recipe.capture(checkpoint, self.recorder, self.weights, self.extents, syntax)
        self.serving = serving.serving_contract(
            model,
            self.extents,
            checkpoint.generation_defaults,
            served_id="tiny",
            aliases=(),
            cache_identity="tiny",
        )

    def lower(
        self, fusions: Sequence[Fusion] = (), lowerings: Mapping[str, Lowering] = LOWERINGS
    ) -> nodes.Lowered:
        """All programs' kernels."""
        return nodes.lower_all(self.recorder, kernels(fusions, lowerings))

    def manifest(self, fusions: Sequence[Fusion] = ()) -> pb.ExecutionManifest:
        """The manifest with nodes."""
        lowered = self.lower(fusions)
        nodes.place(self.recorder, lowered, compiled(lowered))
        return self.recorder.manifest(target(lowered))
