"""The tuning catalog: producers, what they write, and the graphs that wait for them.

A producer runs once, before the programs that name it; what it leaves in TUNED buffers never
changes again. So it may write nothing that a request brings or leaves, and programs may only read
what a producer of theirs has written. What a measurement picks, which differs from start to start,
is read by nothing but kernels whose variants give the same bits. Called by `manifest_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from helios.contract.enums import Operation
from helios.contract.model import GraphContract
from helios.runtime.checks.places import Place, program_places
from helios.runtime.checks.uses import Use
from helios.runtime.manifest import BufferClass, Manifest, Program

# Operands: what a kernel that measures picks, and what picks a variant with the same bits.
_CHOICE: Final = "choice"
_TUNING: Final = "tuning"
# What a producer may touch: its results, scratch, and what nobody writes.
_ALLOWED: Final = (
    BufferClass.TUNED,
    BufferClass.WORKSPACE,
    BufferClass.WEIGHT,
    BufferClass.HOST_TABLE,
)


def check_tuned_bindings(graph: GraphContract, program: Program, at: Place) -> None:
    """The contract's tuned bindings are the program's, name for name and in the same order."""
    declared = tuple((binding.buffer, binding.producer) for binding in graph.tuned_bindings)
    for number, (mine, captured) in enumerate(zip(declared, program.tuned, strict=False)):
        for field, left, right in zip(("buffer", "producer"), mine, captured, strict=True):
            if left != right:
                at.refuse(
                    f"tuned_bindings[{number}].{field}",
                    f"is {left!r}, but the program's is {right!r}",
                )
    if len(declared) != len(program.tuned):
        at.refuse(
            "tuned_bindings", f"are {len(declared)}, but the program's are {len(program.tuned)}"
        )


def check_tuning(manifest: Manifest, uses: Mapping[str, tuple[Use, ...]]) -> None:
    """Producers against their outputs, and programs against the producers that they name. `uses`
    holds those of every program by name."""
    _check_choices(manifest)
    outputs: dict[str, set[int]] = {}
    owners: dict[int, str] = {}
    for at, producer in program_places("tuning", manifest.tuning):
        own = uses[producer.name]
        _check_producer(producer, own, at, manifest)
        # A producer may build on those before it.
        _check_reads(producer, own, at, manifest, outputs)
        written = {use.buffer for use in _writes(own, manifest)}
        for buffer in written:
            if buffer in owners:
                at.refuse(
                    "launches",
                    f"{manifest.buffers[buffer].name!r} is written by {owners[buffer]!r} too",
                )
            owners[buffer] = producer.name
        outputs[producer.name] = written
    for at, program in program_places("programs", manifest.programs):
        own = uses[program.name]
        for use in _writes(own, manifest):
            at.refuse(
                use.field,
                f"writes {manifest.buffers[use.buffer].name!r}, which only a producer may",
            )
        _check_reads(program, own, at, manifest, outputs)


def _check_producer(
    producer: Program, uses: tuple[Use, ...], at: Place, manifest: Manifest
) -> None:
    if producer.operation is not Operation.TUNE:
        at.refuse("operation", f"is {producer.operation.name}, but the tuning catalog tunes")
    for field, present in (
        ("inputs", producer.inputs),
        ("completion", producer.completion),
        ("accesses", producer.accesses),
    ):
        if present:
            at.refuse(field, "belong to a request, and a producer runs before there are any")
    for use in uses:
        buffer = manifest.buffers[use.buffer]
        if buffer.buffer_class not in _ALLOWED:
            touches = "writes" if use.access.writes else "reads"
            at.refuse(
                use.field,
                f"{touches} {buffer.name!r}, which is {buffer.buffer_class.name}: a producer takes"
                " no request input, graph state or cache",
            )


def _check_reads(
    program: Program,
    uses: tuple[Use, ...],
    at: Place,
    manifest: Manifest,
    outputs: Mapping[str, set[int]],
) -> None:
    """What a program reads of TUNED buffers is what its bindings name, produced before it."""
    bound: set[int] = set()
    for number, (name, producer) in enumerate(program.tuned):
        where = f"tuned_bindings[{number}]"
        index = manifest.buffer_index.get(name)
        if index is None or manifest.buffers[index].buffer_class is not BufferClass.TUNED:
            at.refuse(f"{where}.buffer", f"{name!r} is no TUNED buffer")
        written = outputs.get(producer)
        if written is None:
            at.refuse(f"{where}.producer", f"no tuning program {producer!r} before this one")
        if index not in written:
            at.refuse(f"{where}.producer", f"{producer!r} doesn't write {name!r}")
        bound.add(index)
    own = {use.buffer for use in _writes(uses, manifest)}
    for use in uses:
        buffer = manifest.buffers[use.buffer]
        if buffer.buffer_class is BufferClass.TUNED and use.buffer not in bound | own:
            at.refuse(
                use.field, f"reads {buffer.name!r}, which no tuned binding of the program names"
            )


def _check_choices(manifest: Manifest) -> None:
    """What a measurement picked is only taken to pick a variant."""
    chosen = {
        operand.buffer
        for producer in manifest.tuning
        for launch in producer.launches
        for operand, spec in zip(launch.operands, launch.kernel.operands, strict=True)
        if operand is not None and spec.name == _CHOICE
    }
    if not chosen:
        return
    placed = (
        *program_places("programs", manifest.programs),
        *program_places("tuning", manifest.tuning),
    )
    for at, program in placed:
        for number, launch in enumerate(program.launches):
            for position, operand in enumerate(launch.operands):
                if operand is None or operand.buffer not in chosen or not operand.access.reads:
                    continue
                taken = launch.kernel.operands[position].name
                if taken != _TUNING:
                    at.refuse(
                        f"launches[{number}].operands[{position}].buffer",
                        f"takes {manifest.buffers[operand.buffer].name!r}, which a measurement"
                        f" picks, as {taken!r}: then answers would depend on it",
                    )


def _writes(uses: tuple[Use, ...], manifest: Manifest) -> list[Use]:
    """The writes to TUNED buffers."""
    return [
        use
        for use in uses
        if use.access.writes and manifest.buffers[use.buffer].buffer_class is BufferClass.TUNED
    ]
