"""The registry of recipes. A recipe is a module with metadata and a `capture` function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from helios.schema import contract_pb2
from ignition.capture.recorder import Recorder
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.errors import CheckpointError
from ignition.preparation.paged_text import Extents
from ignition.preparation.weights import WeightSet
from ignition.recipes import llama

Capture = Callable[[Checkpoint, Recorder, WeightSet, Extents], contract_pb2.ModelContract]


@dataclass(frozen=True)
class Recipe:
    """How checkpoints of some families become programs; `families` as transformers names them."""

    name: str
    summary: str
    families: tuple[str, ...]
    capture: Capture


RECIPES: Final = (Recipe(llama.NAME, llama.SUMMARY, llama.FAMILIES, llama.capture),)


def choose(name: str, family: str) -> Recipe:
    """The recipe called `name`; for "auto" the one that prepares `family`."""
    for recipe in RECIPES:
        if recipe.name == name or (name == "auto" and family in recipe.families):
            return recipe
    known = ", ".join(recipe.name for recipe in RECIPES)
    if name != "auto":
        raise CheckpointError(f"there is no recipe {name!r}", remedy=f"Recipes are: {known}")
    raise CheckpointError(
        f"no recipe prepares {family}",
        remedy=f"`ignition recipes` lists what can be prepared; --recipe NAME ({known}) tries one",
    )
