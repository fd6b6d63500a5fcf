"""Chat templates of families whose checkpoints ship code in their place, as data for recipes.

Each gives the prompt that the family's encoder gives. What isn't syntax but wording (headings,
preambles of effort) stands in the first lines of a template, for a recipe to put the checkpoint's
own words there.
"""

from __future__ import annotations

from enum import Enum
from importlib import resources


class FamilyTemplate(Enum):
    """The templates that there are."""

    XTML = "xtml"
    DSML = "dsml"
    RECIPIENT_HEADERS = "recipient_headers"


def read_template(which: FamilyTemplate) -> str:
    """A template's source."""
    return resources.files(__name__).joinpath(f"{which.value}.jinja").read_text("utf-8")
