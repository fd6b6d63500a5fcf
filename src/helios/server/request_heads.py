"""Requests' heads that h11 takes and this server reads otherwise.

Where a body has two lengths, whoever stands between may believe the other one, and so take the
rest of the body for somebody's next request. Such a connection ends with a refusal. A target may
also be a whole URL, as clients write it for a proxy; routes see its path.
"""

from __future__ import annotations

import re
from typing import Any, Final

import h11

_ABSOLUTE: Final = re.compile(rb"https?://[^/?#]+(/[^?#]*)?(\?.*)?", re.IGNORECASE)


class AmbiguousLengthError(h11.RemoteProtocolError):
    """A request whose body may end in two places."""


class HeadReader(h11.Connection):
    """h11's connection of a server, with these heads."""

    def __init__(self, limit_nbytes: int) -> None:
        super().__init__(h11.SERVER, limit_nbytes)

    def next_event(self) -> Any:
        """As h11's. Raises AmbiguousLengthError, besides what that raises."""
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        names = {name for name, _ in event.headers}
        if b"transfer-encoding" in names:
            if b"content-length" in names:
                raise AmbiguousLengthError("Content-Length and Transfer-Encoding are both there")
            if event.http_version < b"1.1":
                raise AmbiguousLengthError("HTTP/1.0 has no Transfer-Encoding")
        absolute = _ABSOLUTE.fullmatch(event.target)
        if absolute is None or event.method == b"CONNECT":
            return event
        return h11.Request(
            method=event.method,
            headers=event.headers.raw_items(),
            target=(absolute[1] or b"/") + (absolute[2] or b""),
            http_version=event.http_version,
        )
