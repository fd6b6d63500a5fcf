"""How much a client may send, and how long it may take."""

from __future__ import annotations

import math

from helios.dataclass import dataclass
from helios.errors import HeliosError


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Bounds on what clients do. Raises HeliosError for values that bound nothing.

    A request's head (its request line and headers, a TLS handshake before them included) and its
    body each have to arrive within their time; `keep_alive_s` is how long a connection may do
    nothing between two requests. `request_timeout_s` ends a request that isn't answered by then,
    and `write_timeout_s` drops a client that takes nothing of its answer for so long: without
    them (None) an answer takes what it takes and a reader may pause for ever. After a signal to
    end, running requests may go on for `shutdown_timeout_s` before connections are drained.
    """

    max_body_nbytes: int = 16 << 20
    head_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    keep_alive_s: float = 75.0
    request_timeout_s: float | None = None
    write_timeout_s: float | None = None
    max_connections: int = 4096
    shutdown_timeout_s: float = 0.0

    def __post_init__(self) -> None:
        for option, value in (
            ("--max-body-size", self.max_body_nbytes),
            ("--head-timeout", self.head_timeout_s),
            ("--body-timeout", self.body_timeout_s),
            ("--keep-alive", self.keep_alive_s),
            ("--request-timeout", self.request_timeout_s),
            ("--write-timeout", self.write_timeout_s),
            ("--max-connections", self.max_connections),
        ):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise HeliosError(
                    f"{value} bounds nothing", where=option, remedy="Give a number above 0"
                )
        if not (math.isfinite(self.shutdown_timeout_s) and self.shutdown_timeout_s >= 0):
            raise HeliosError(
                f"{self.shutdown_timeout_s} is no time",
                where="--shutdown-timeout",
                remedy="Give seconds, 0 or more",
            )
