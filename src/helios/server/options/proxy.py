"""What stands between clients and the server."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from helios.dataclass import dataclass
from helios.errors import HeliosError

_ROOT_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """`root_path` is the prefix below which a proxy shows the server, whether it takes it off
    before it passes requests on or not; empty for none. `trusted` are addresses and networks whose
    `X-Forwarded-For` and `X-Forwarded-Proto` are believed, `*` being all. Raises HeliosError for
    what is none of these."""

    root_path: str = ""
    trusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        segments = self.root_path.split("/")
        if self.root_path and (
            not _ROOT_PATH.fullmatch(self.root_path) or {".", ".."} & set(segments)
        ):
            raise HeliosError(
                f"{self.root_path!r} is no prefix of paths",
                where="--root-path",
                remedy="Write it like /llm, without a slash at its end",
            )
        for address in self.trusted:
            if address != "*":
                _check_network(address)


def _check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise HeliosError(
            f"{text!r} is no address or network",
            where="--forwarded-allow-ips",
            remedy="Write it like 10.0.0.5, 10.0.0.0/8 or *",
        ) from error
