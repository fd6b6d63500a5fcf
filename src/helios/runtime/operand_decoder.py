"""From an Operand message to an `Operand`: one use of a buffer, checked against that buffer.

Called by `program_decoder` for what a kernel is given and by `node_decoder` for what a CUDA
function is. A manifest holds tens of thousands of operands, so a path is made only for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from helios.contract.enums import AccessMode
from helios.contract.fields import enum, refuse
from helios.runtime.manifest import Buffer, BufferClass, Operand

_READ_ONLY: Final = (BufferClass.WEIGHT, BufferClass.INPUT, BufferClass.HOST_TABLE)


def decode_operand(message: Any, buffers: Sequence[Buffer], path: Callable[[str], str]) -> Operand:
    """An operand that is present; `path` gives the path of one of its fields. Raises
    ContractError for a buffer that doesn't exist, a place outside of it or inside an element, and
    a write to what is only read."""
    if not 1 <= message.buffer <= len(buffers):
        refuse(path("buffer"), f"no buffer {message.buffer}")
    buffer = buffers[message.buffer - 1]
    access = enum(AccessMode, message.access, path("access"))
    if access.writes and buffer.buffer_class in _READ_ONLY:
        refuse(path("access"), f"writes {buffer.name!r}, which is {buffer.buffer_class.name}")
    if message.byte_offset >= buffer.nbytes:
        refuse(
            path("byte_offset"),
            f"{message.byte_offset} is past the {buffer.nbytes} bytes of {buffer.name!r}",
        )
    if message.byte_offset % buffer.dtype.alignment:
        refuse(path("byte_offset"), f"{message.byte_offset} splits an element of {buffer.name!r}")
    return Operand(message.buffer - 1, message.byte_offset, access)
