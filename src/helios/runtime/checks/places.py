"""Where a checked value is: its path for whoever reads the files, and the graph it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from helios.contract.fields import join, refuse
from helios.contract.model import GraphContract
from helios.dataclass import dataclass
from helios.runtime.manifest import Program


@dataclass(frozen=True, slots=True)
class Place:
    """A path like `model.graphs[3].bindings[1]` and what it is part of, like `graph decode.b1`."""

    path: str
    owner: str

    def within(self, part: str) -> Place:
        """The place of a part."""
        return replace(self, path=join(self.path, part))

    def refuse(self, field: str, what: str, remedy: str = "") -> NoReturn:
        """Raises the ContractError of a field here; it names path and owner."""
        refuse(join(self.path, field), f"{what} ({self.owner})", remedy)


def graph_place(index: int, graph: GraphContract) -> Place:
    """A graph of the contract."""
    return Place(f"model.graphs[{index}]", f"graph {graph.name}")


def program_places(catalog: str, programs: Sequence[Program]) -> tuple[tuple[Place, Program], ...]:
    """Programs of the manifest's catalog `programs` or `tuning`, each with its place."""
    return tuple(
        (Place(f"{catalog}[{index}]", f"program {program.name}"), program)
        for index, program in enumerate(programs)
    )
