"""The tuning catalog against the programs that wait for it: one thing broken at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helios.contract import decode
from helios.errors import ContractError
from helios.kernels.catalogue import BY_NAME
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import contract_pb2 as c
from helios.schema import execution_pb2 as pb
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import LANES, sample_manifest

Change = Callable[[pb.ExecutionManifest, c.ServingContract], object]
DECODE = 3
PRODUCER = "tune"


def scatter(manifest: pb.ExecutionManifest, program: pb.Program, target: str) -> None:
    """A launch that reads scratch and writes `target`."""
    spec = BY_NAME["scatter_i32"]
    number = [use.name for use in manifest.kernels].index(spec.name)
    launch = program.launches.add(kernel=number, integers=[1])
    for operand, name in zip(
        spec.operands, ("selected_rows", "sampled", "sampled", target), strict=True
    ):
        launch.operands.add(buffer=index_of(manifest, name) + 1, access=_mode(operand.access))


def _mode(access: str) -> int:
    return {"r": 1, "w": 2, "rw": 3}[access]


def index_of(manifest: pb.ExecutionManifest, name: str) -> int:
    return [buffer.name for buffer in manifest.buffers].index(name)


def tuned_buffer(manifest: pb.ExecutionManifest, name: str) -> None:
    manifest.buffers.add(
        name=name, buffer_class=pb.BUFFER_CLASS_TUNED, dtype=pb.DTYPE_I32,
        packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=[LANES], nbytes=4 * LANES,
    )  # fmt: skip


def producer(manifest: pb.ExecutionManifest, name: str, target: str) -> pb.Program:
    program = manifest.tuning.add(name=name, operation=c.OPERATION_TUNE, batch_capacity=1)
    scatter(manifest, program, target)
    return program


def tuned() -> tuple[pb.ExecutionManifest, c.ServingContract]:
    """The sample, with a producer whose choice decode.b1's sampling reads as its lanes."""
    manifest, contract = sample_manifest(), sample_contract()
    tuned_buffer(manifest, "choice")
    producer(manifest, PRODUCER, "choice")
    program = manifest.programs[DECODE]
    program.launches[4].operands[1].buffer = index_of(manifest, "choice") + 1
    program.launches[4].operands[1].access = _mode("r")
    binding = c.TunedBinding(buffer="choice", producer=PRODUCER)
    program.tuned_bindings.append(binding)
    contract.model.graphs[DECODE].tuned_bindings.append(binding)
    return manifest, contract


def both(manifest: pb.ExecutionManifest, contract: c.ServingContract, **values: str) -> None:
    """Changes the binding on both sides alike."""
    for side in (manifest.programs[DECODE], contract.model.graphs[DECODE]):
        for field, value in values.items():
            setattr(side.tuned_bindings[0], field, value)


def touch(manifest: pb.ExecutionManifest, name: str, access: int = 1, position: int = 1) -> None:
    """Lets the producer's launch touch another buffer."""
    operand = manifest.tuning[0].launches[0].operands[position]
    operand.buffer = index_of(manifest, name) + 1
    operand.access = access


WRITES = "tuning[0].launches[0].operands[3].buffer"
READS = "tuning[0].launches[0].operands[1].buffer"
TUNE, B1, OF = "(program tune)", "(program decode.b1)", "(graph decode.b1)"
G, D = "model.graphs[3].tuned_bindings", "programs[3].tuned_bindings"
CASES: list[tuple[str, str, Change]] = [
    # names on both sides
    (G, OF, lambda x, y: y.model.graphs[DECODE].ClearField("tuned_bindings")),
    (G, OF, lambda x, y: x.programs[DECODE].ClearField("tuned_bindings")),
    (
        f"{G}[0].buffer",
        OF,
        lambda x, y: setattr(y.model.graphs[DECODE].tuned_bindings[0], "buffer", "Choice"),
    ),
    (
        f"{G}[0].producer",
        OF,
        lambda x, y: setattr(x.programs[DECODE].tuned_bindings[0], "producer", "tune "),
    ),
    (f"{D}[0].buffer", B1, lambda x, y: both(x, y, buffer="nothing")),
    (f"{D}[0].buffer", B1, lambda x, y: both(x, y, buffer="x")),
    (f"{D}[0].producer", B1, lambda x, y: both(x, y, producer="nothing")),
    (f"{D}[0].producer", B1, lambda x, y: both(x, y, producer="decode.b2")),
    (f"{D}[0].producer", B1, lambda x, y: _other_output(x)),
    # what a producer may touch
    (WRITES, TUNE, lambda x, y: touch(x, "page_table", 2, 3)),
    (WRITES, TUNE, lambda x, y: touch(x, "request_state", 2, 3)),
    (WRITES, TUNE, lambda x, y: touch(x, "cache.k.0", 2, 3)),
    (WRITES, TUNE, lambda x, y: touch(x, "completion.lanes", 2, 3)),
    (READS, TUNE, lambda x, y: touch(x, "in.slot")),
    (READS, TUNE, lambda x, y: touch(x, "request_state")),
    (READS, TUNE, lambda x, y: touch(x, "cache.v.0")),
    ("tuning[0].operation", TUNE, lambda x, y: setattr(x.tuning[0], "operation", 7)),
    ("tuning[0].inputs", TUNE, lambda x, y: x.tuning[0].inputs.append("slot")),
    ("tuning[0].completion", TUNE, lambda x, y: setattr(x.tuning[0], "completion", "tokens")),
    (
        "tuning[0].accesses",
        TUNE,
        lambda x, y: x.tuning[0].accesses.add(view="request", mode=1),
    ),
    # who may write, and who may read
    ("tuning[1].launches", "(program again)", lambda x, y: producer(x, "again", "choice")),
    (
        "programs[4].launches[6].operands[3].buffer",
        "(program decode.b2)",
        lambda x, y: scatter(x, x.programs[4], "choice"),
    ),
    (
        "programs[4].launches[4].operands[1].buffer",
        "(program decode.b2)",
        lambda x, y: (
            x.programs[4]
            .launches[4]
            .operands[1]
            .CopyFrom(x.programs[DECODE].launches[4].operands[1])
        ),
    ),
    ("tuning[0].tuned_bindings[0].producer", TUNE, lambda x, y: _later(x)),
]


def _other_output(manifest: pb.ExecutionManifest) -> None:
    """The producer writes something else than what is bound."""
    tuned_buffer(manifest, "other")
    touch(manifest, "other", 2, 3)


def _later(manifest: pb.ExecutionManifest) -> None:
    """The producer builds on one that runs after it."""
    tuned_buffer(manifest, "other")
    producer(manifest, "second", "other")
    manifest.tuning[0].tuned_bindings.add(buffer="other", producer="second")
    touch(manifest, "other")


def test_the_tuned_sample_agrees() -> None:
    manifest, contract = tuned()
    check_manifest(decode_manifest(manifest), decode(contract))


@pytest.mark.clause("BOOT-10")
def test_a_producer_may_build_on_an_earlier_one() -> None:
    manifest, contract = tuned()
    tuned_buffer(manifest, "other")
    second = producer(manifest, "second", "other")
    second.tuned_bindings.add(buffer="choice", producer=PRODUCER)
    second.launches[0].operands[1].buffer = index_of(manifest, "choice") + 1
    check_manifest(decode_manifest(manifest), decode(contract))


@pytest.mark.clause("BOOT-10")
@pytest.mark.parametrize(
    ("where", "named", "change"), CASES, ids=[f"{i}-{w}" for i, (w, _, _) in enumerate(CASES)]
)
def test_producers_and_dependents_must_agree(where: str, named: str, change: Change) -> None:
    manifest, contract = tuned()
    change(manifest, contract)
    with pytest.raises(ContractError) as raised:
        check_manifest(decode_manifest(manifest), decode(contract))
    assert raised.value.where == where
    assert named in str(raised.value)
