"""Decoding of captured programs: launches against the kernel catalogue, operands against buffers.

Called by `manifest_decoder` alone. A manifest holds tens of thousands of operands, so paths are
made only for errors and equal operands share one object.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from helios.contract.enums import AccessMode, Operation
from helios.contract.fields import each, enum, integer, join, name, refuse, unique
from helios.kernels.catalogue import BY_NAME, KernelSpec
from helios.runtime.manifest import (
    Buffer,
    BufferClass,
    CompletionRecord,
    CudaNode,
    CudaTarget,
    Launch,
    Operand,
    Program,
)
from helios.runtime.node_decoder import NodeDecoder
from helios.runtime.operand_decoder import decode_operand

BATCH_LIMIT = 1 << 16
_ACCESS = {"r": AccessMode.READ, "w": AccessMode.WRITE, "rw": AccessMode.READ_WRITE}


class ProgramDecoder:
    """Decodes programs of one manifest; holds what they refer to."""

    def __init__(
        self,
        kernels: Sequence[Any],
        buffers: Sequence[Buffer],
        *,
        destinations: Set[str],
        completions: Mapping[str, CompletionRecord],
        cuda: CudaTarget | None,
    ) -> None:
        self._buffers = buffers
        self._destinations = destinations
        self._completions = completions
        self._nodes = None if cuda is None else NodeDecoder(buffers, cuda)
        self._kernels = each(kernels, "kernels", _kernel)
        unique((spec.name for spec in self._kernels), "kernels", ".name")
        self._operands: dict[tuple[int, int, int, str], Operand] = {}

    def decode(self, message: Any, where: str) -> Program:
        """One program with all its launches."""
        batch = integer(
            message.batch_capacity, join(where, "batch_capacity"), low=1, high=BATCH_LIMIT
        )
        inputs = each(message.inputs, join(where, "inputs"), name)
        unique(inputs, join(where, "inputs"))
        for number, destination in enumerate(inputs):
            if destination not in self._destinations:
                refuse(join(where, f"inputs[{number}]"), f"no destination {destination!r}")
        if message.completion:
            self._check_completion(message.completion, batch, join(where, "completion"))
        if not message.launches:
            refuse(join(where, "launches"), "is empty")
        return Program(
            name=name(message.name, join(where, "name")),
            operation=enum(Operation, message.operation, join(where, "operation")),
            batch_capacity=batch,
            draft_tokens=integer(message.draft_tokens, join(where, "draft_tokens")),
            token_capacity=integer(message.token_capacity, join(where, "token_capacity")),
            packed_token_capacity=integer(
                message.packed_token_capacity, join(where, "packed_token_capacity")
            ),
            launches=tuple(
                self._launch(launch, where, number)
                for number, launch in enumerate(message.launches)
            ),
            inputs=inputs,
            completion=message.completion,
            accesses=each(
                message.accesses,
                join(where, "accesses"),
                lambda m, at: (m.view, enum(AccessMode, m.mode, join(at, "mode"))),
            ),
            tuned=each(
                message.tuned_bindings,
                join(where, "tuned_bindings"),
                lambda m, at: (m.buffer, m.producer),
            ),
        )

    def _check_completion(self, record: str, batch: int, where: str) -> None:
        found = self._completions.get(record)
        if found is None:
            refuse(where, f"no completion record {record!r}")
        rows = self._buffers[found.lanes].shape[0]
        if rows < batch:
            refuse(where, f"{record!r} has {rows} rows for {batch} lanes")

    def _launch(self, message: Any, program: str, number: int) -> Launch:
        if message.kernel >= len(self._kernels):
            refuse(f"{program}.launches[{number}].kernel", f"no kernel {message.kernel}")
        spec = self._kernels[message.kernel]
        integers, floats = tuple(message.integers), tuple(message.floats)
        if len(message.operands) != len(spec.operands):
            self._refuse_count(program, number, "operands", len(message.operands), spec)
        if len(integers) != len(spec.integers):
            self._refuse_count(program, number, "integers", len(integers), spec)
        if len(floats) != len(spec.floats):
            self._refuse_count(program, number, "floats", len(floats), spec)
        for position, value in enumerate(floats):
            if not math.isfinite(value):
                refuse(f"{program}.launches[{number}].floats[{position}]", f"{value} is not finite")
        operands = self._launch_operands(message, spec, program, number)
        nodes = self._launch_nodes(message, f"{program}.launches[{number}]")
        return Launch(spec, operands, integers, floats, nodes)

    def _launch_nodes(self, message: Any, launch: str) -> tuple[CudaNode, ...]:
        if not message.nodes:
            return ()
        decoder = self._nodes
        if decoder is None:
            refuse(f"{launch}.nodes", "belong to cuda targets")
        return tuple(
            decoder.decode(node, launch, number) for number, node in enumerate(message.nodes)
        )

    def _launch_operands(
        self, message: Any, spec: KernelSpec, program: str, launch: int
    ) -> tuple[Operand | None, ...]:
        operands: list[Operand | None] = []
        known = self._operands
        for expected, found in zip(spec.operands, message.operands, strict=True):
            buffer = found.buffer
            if not buffer:
                if not expected.optional or found.byte_offset or found.access:
                    refuse(
                        _operand_path(program, launch, len(operands), "buffer"),
                        f"{spec.name} needs its operand {expected.name!r}",
                    )
                operands.append(None)
                continue
            # Equal operands of equally used places share an object, checked once.
            key = (buffer, found.byte_offset, found.access, expected.access)
            operand = known.get(key)
            if operand is None:
                operand = self._new_operand(found, program, launch, len(operands))
                if operand.access is not _ACCESS[expected.access]:
                    refuse(
                        _operand_path(program, launch, len(operands), "access"),
                        f"is {operand.access.name}, but {spec.name} uses {expected.name!r} as"
                        f" {_ACCESS[expected.access].name}",
                    )
                known[key] = operand
            operands.append(operand)
        return tuple(operands)

    def _new_operand(self, message: Any, program: str, launch: int, position: int) -> Operand:
        operand = decode_operand(
            message,
            self._buffers,
            lambda field: _operand_path(program, launch, position, field),
        )
        buffer = self._buffers[operand.buffer]
        if buffer.buffer_class is BufferClass.COUNTER:
            refuse(
                _operand_path(program, launch, position, "buffer"),
                f"{buffer.name!r} counts for nodes, and is no kernel's operand",
            )
        return operand

    def _refuse_count(
        self, program: str, launch: int, field: str, count: int, spec: KernelSpec
    ) -> None:
        expected = len(getattr(spec, field))
        refuse(
            f"{program}.launches[{launch}].{field}",
            f"{spec.name} takes {expected} {field}, not {count}",
        )


def _operand_path(program: str, launch: int, position: int, field: str) -> str:
    return f"{program}.launches[{launch}].operands[{position}].{field}"


def _kernel(message: Any, where: str) -> KernelSpec:
    spec = BY_NAME.get(message.name)
    if spec is None:
        refuse(
            join(where, "name"),
            f"no kernel {message.name!r} in this version's catalogue",
            "The core may need a newer Helios",
        )
    expected = {
        "operands": tuple(operand.name for operand in spec.operands),
        "integers": spec.integers,
        "floats": spec.floats,
    }
    for field, names in expected.items():
        if tuple(getattr(message, field)) != names:
            refuse(
                join(where, field),
                f"{spec.name} has {field} {names}, not {tuple(getattr(message, field))}",
            )
    return spec
