"""Messages whose bytes have been damaged, for decoders that take nothing but what is valid."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st

M = TypeVar("M", bound=Message)


def damaged(data: st.DataObject, message: M) -> M | None:
    """The message with some of its bytes changed; None where that is no message any more."""
    wire = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    try:
        return type(message).FromString(bytes(wire))
    except (DecodeError, UnicodeDecodeError):
        return None
