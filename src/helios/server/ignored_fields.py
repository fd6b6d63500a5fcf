"""Body fields that have no meaning here, as a response names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_FIELD_NAME: Final = re.compile(r"[A-Za-z0-9_.\[\]-]{1,96}")
_SHOWN: Final = 20


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """The response header that names the fields, none where there are none. Names come from the
    client, so only harmless ones are repeated."""
    shown = [name if _FIELD_NAME.fullmatch(name) else "?" for name in names[:_SHOWN]]
    return {"x-helios-ignored": ", ".join(shown)} if shown else {}
