"""The version of Helios; pyproject.toml repeats it."""

from typing import Final

VERSION: Final = "0.2.0"
