"""What the first HTTP process tells another one that it starts (`http_child`)."""

from __future__ import annotations

import sys
from typing import Final

from helios.dataclass import dataclass
from helios.server.server import ServerOptions

CHILD_COMMAND: Final = (sys.executable, "-m", "helios.server.http_child")
# On the control socket: from the child once it takes connections, to it for what a signal means.
SERVES: Final = b"r"
STOP: Final = b"s"


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """What a process is to do. `number` is its own in request ids, `cell` its place among the
    processes; the rest are descriptors that it inherits, and when the server was `created`."""

    options: ServerOptions
    number: int
    cell: int
    listener: int
    connection: int
    permits: int
    control: int
    created: int
