"""The registry of recipes. A recipe is a module with metadata and a `capture` function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from helios.schema import contract_pb2
from ignition.capture.recorder import Recorder
from ignition.preparation.chat_syntax import ChatSyntax
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.errors import CheckpointError
from ignition.preparation.extents import Extents
from ignition.preparation.weights import WeightSet
from ignition.recipes import llama

# How the model's chats are written was found before: families of one arithmetic differ in it.
Capture = Callable[
    [Checkpoint, Recorder, WeightSet, Extents, ChatSyntax], contract_pb2.ModelContract
]


@dataclass(frozen=True)
class Recipe:
    """How checkpoints of some families become programs; `families` as transformers names them."""

    name: str
    summary: str
    families: tuple[str, ...]
    capture: Capture


RECIPES: Final = (Recipe(llama.NAME, llama.SUMMARY, llama.FAMILIES, llama.capture),)


AUTO: Final = "auto"


def check_name(name: str) -> None:
    """Refuses a name that is neither a recipe's nor "auto". Raises CheckpointError."""
    if name != AUTO and all(recipe.name != name for recipe in RECIPES):
        raise CheckpointError(
            f"there is no recipe {name!r}",
            where="--recipe",
            remedy=f"Recipes are: {_known()}, or {AUTO} to choose by the checkpoint's family",
        )


def choose(name: str, family: str) -> Recipe:
    """The recipe called `name`, which `check_name` let pass; for "auto" the one that prepares
    `family`. Raises CheckpointError where there is none."""
    for recipe in RECIPES:
        if recipe.name == name or (name == AUTO and family in recipe.families):
            return recipe
    raise CheckpointError(
        f"no recipe prepares {family}",
        remedy=f"`ignition recipes` lists what can be prepared; --recipe NAME ({_known()}) tries"
        " one",
    )


def _known() -> str:
    return ", ".join(recipe.name for recipe in RECIPES)
