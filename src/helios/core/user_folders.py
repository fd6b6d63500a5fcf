"""Where this user's own files lie, by the XDG base directory rules. `trust` and `cache` ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from helios.errors import CoreError


def user_folder(variable: str, below_home: str, environment: Mapping[str, str], own: str) -> Path:
    """The `helios` folder below the one that `variable` names; below `below_home` in the user's
    home where it is unset or, as the rules say, not absolute. Raises CoreError that names `own`,
    Helios's own variable, where there is no home."""
    base = environment.get(variable, "")
    if base.startswith("/"):
        return Path(base) / "helios"
    try:
        return Path.home() / below_home / "helios"
    except RuntimeError as error:
        raise CoreError("this user has no home folder", where=own, remedy=f"Set {own}") from error
