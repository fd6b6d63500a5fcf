"""Startup tuning of one program: a producer that measures a blocking for each shape it multiplies.

The op layer asks for the blocking of a projection; the first time a shape is asked for, a buffer
for the choice is declared and the measuring launch is recorded into the program's producer, which
is begun when there is something to measure. The bindings say which program waits for what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from helios.kernels.catalogue import ActivationFormat
from helios.schema import contract_pb2
from helios.schema import execution_pb2 as pb
from ignition.capture.buffers import BufferTable
from ignition.capture.handles import Activation, BufferHandle, Matrix
from ignition.capture.program import ProgramRecorder

_Shape = tuple[str, int, int, int, int, ActivationFormat, ActivationFormat]
PRODUCER_PREFIX: Final = "tune."


class ProgramTuning:
    """Blockings of the program `message`; `begin` starts its producer by name."""

    def __init__(
        self,
        buffers: BufferTable,
        message: pb.Program,
        begin: Callable[[str], ProgramRecorder],
    ) -> None:
        self._buffers = buffers
        self._message = message
        self._begin = begin
        self._producer: ProgramRecorder | None = None
        self._choices: dict[_Shape, BufferHandle] = {}

    def linear(self, capacity: int, x: Activation, weight: Matrix) -> BufferHandle:
        """The choice for `linear_tuned` of `capacity` rows."""
        return self._choice("tune_linear", capacity, x, weight, weight.outputs, None)

    def linear_silu_mul(
        self, capacity: int, x: Activation, gate_up: Matrix, form: ActivationFormat
    ) -> BufferHandle:
        """The choice for `linear_silu_mul_tuned` that writes `form`."""
        return self._choice(
            "tune_linear_silu_mul", capacity, x, gate_up, gate_up.outputs // 2, form
        )

    def _choice(
        self,
        kernel: str,
        capacity: int,
        x: Activation,
        weight: Matrix,
        outputs: int,
        form: ActivationFormat | None,
    ) -> BufferHandle:
        out_format = ActivationFormat.F32 if form is None else form
        shape = (kernel, capacity, x.width, outputs, weight.packing, x.format, out_format)
        known = self._choices.get(shape)
        if known is not None:
            return known
        program, number = self._message.name, len(self._choices)
        producer = self._producer or self._begin(f"{PRODUCER_PREFIX}{program}")
        self._producer = producer
        choice = self._buffers.plain(
            f"tuned.{program}.{number}", pb.BUFFER_CLASS_TUNED, pb.DTYPE_I32, (1,)
        )
        integers = {
            "capacity": capacity,
            "width": x.width,
            "outputs": outputs,
            "packing": weight.packing,
            "format": x.format,
        }
        if form is not None:
            integers["out_format"] = form
        scratch = producer.activation(f"x.{number}", capacity, x.width, x.format)
        out = producer.activation(f"out.{number}", capacity, outputs, out_format)
        producer.launch(
            kernel,
            {"x": scratch.buffer, "weight": weight.buffer, "out": out.buffer, "choice": choice},
            integers,
        )
        self._message.tuned_bindings.append(
            contract_pb2.TunedBinding(buffer=choice.name, producer=producer.message.name)
        )
        self._choices[shape] = choice
        return choice
