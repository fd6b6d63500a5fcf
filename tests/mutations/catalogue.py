"""Mutations: for each clause that marked tests prove, a small edit that disables its enforcement.

Some are of no clause: what they break is promised by the project's own documents, and any of the
tests that they name may catch them. Data lies beside this file, a TOML file an area; `__main__`
applies it. Here it is read and held against the source and against the marks in the tests.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(__file__).parent
_KEYS: Final = {"file", "old", "new", "tests"}
_OPTIONAL: Final = {"clause", "hangs", "needs"}


@dataclass(frozen=True)
class Mutation:
    """Replaces `old`, which occurs once, by `new` in `file` (below src/). `tests` are the paths or
    node ids among which marked tests of the clause are looked for, or, without a clause, any tests.
    `hangs` says that they wait for what no longer comes, so that running out of time counts;
    `needs` names modules without which the tests skip, and `area` the TOML file."""

    area: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    clause: str = ""
    hangs: bool = False
    needs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Names it in reports."""
        line = next(iter(self.old.strip().splitlines()), "")
        return f"{self.clause or self.area} {self.file}: {line}"

    def missing(self) -> list[str]:
        """What it needs and isn't installed."""
        return [name for name in self.needs if find_spec(name) is None]


class MutationError(Exception):
    """A mutation can't be applied or would prove nothing."""


def read_mutations(folder: Path = FOLDER) -> list[Mutation]:
    """All mutations, by file and then in order. Raises MutationError naming file and entry."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for number, entry in enumerate(tomllib.loads(path.read_text("utf-8"))["mutation"]):
            found.append(_mutation(entry, path.stem, f"{path.name}, mutation {number + 1}"))
    return found


def _mutation(entry: Mapping[str, Any], area: str, where: str) -> Mutation:
    if entry.keys() - _OPTIONAL != _KEYS:
        raise MutationError(f"{where}: has {sorted(entry)}, not {sorted(_KEYS)}")
    if entry["old"] == entry["new"]:
        raise MutationError(f"{where}: changes nothing")
    lists = {name: tuple(entry.get(name, ())) for name in ("tests", "needs")}
    return Mutation(area, **{**entry, **lists})


def mutated(mutation: Mutation, source: Path) -> str:
    """The text of the mutated file below `source`. Raises MutationError where it is stale."""
    path = source / mutation.file
    if not path.is_file():
        raise MutationError(f"{mutation.title}: there is no such file")
    text = path.read_text("utf-8")
    count = text.count(mutation.old)
    if count != 1:
        raise MutationError(f"{mutation.title}: stale, its old text occurs {count} times")
    return text.replace(mutation.old, mutation.new)


def marked_clauses(tests: Path = ROOT / "tests") -> set[str]:
    """Every clause that a mark in a test file names, apart from the samples inside strings."""
    return {
        clause
        for path in tests.rglob("*.py")
        for clause in _marks(ast.parse(path.read_text("utf-8")))
    }


def _marks(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "clause"
            and isinstance(node.func.value, ast.Attribute)
            and node.func.value.attr == "mark"
        ):
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def check(mutations: Sequence[Mutation], source: Path, marked: set[str]) -> list[str]:
    """What is wrong before anything runs: stale mutations, clauses without one, and the reverse."""
    wrong = []
    for mutation in mutations:
        try:
            mutated(mutation, source)
        except MutationError as error:
            wrong.append(str(error))
    covered = {mutation.clause for mutation in mutations if mutation.clause}
    wrong += [f"{clause}: tests are marked, but no mutation" for clause in sorted(marked - covered)]
    wrong += [f"{clause}: has a mutation, but no test" for clause in sorted(covered - marked)]
    return wrong
