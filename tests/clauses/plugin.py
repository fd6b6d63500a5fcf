"""Which tests prove which clauses of the specification: `pytest --clauses`, `pytest --clause ID`.

A marked test proves its clauses if every phase of it passed in this run; a skipped, failed or
expected-failure test proves nothing (an unexpected pass of the latter neither). The identifiers
travel in the reports, so the table is right under xdist too. An identifier that docs/clauses.md
doesn't have is an error, whether the table is asked for or not. Loaded by tests/conftest.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from tests.clauses.catalogue import read_clauses

_PROPERTY: Final = "clauses"
_TEXT_WIDTH: Final = 100


@dataclass
class _Proof:
    """A test function: how many of its parametrised cases passed, and how many did not."""

    passed: int = 0
    unproved: int = 0


class Clauses:
    """What the tests of one run prove."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self._outcomes: dict[str, bool] = {}  # node id → whether every phase so far passed
        self._clauses: dict[str, tuple[str, ...]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes one phase of one test."""
        named = next((value for name, value in report.user_properties if name == _PROPERTY), None)
        if named is None:
            return
        self._clauses[report.nodeid] = tuple(str(named).split())
        good = report.passed and not hasattr(report, "wasxfail")
        self._outcomes[report.nodeid] = self._outcomes.get(report.nodeid, True) and good

    def proofs(self) -> dict[str, dict[str, _Proof]]:
        """Clause → test function → its cases."""
        found: dict[str, dict[str, _Proof]] = {clause: {} for clause in self.texts}
        for node, good in self._outcomes.items():
            function = node.partition("[")[0]
            for clause in found.keys() & self._clauses[node]:
                proof = found[clause].setdefault(function, _Proof())
                proof.passed += good
                proof.unproved += not good
        return found

    def lines(self) -> list[str]:
        """The table, and what it adds up to."""
        table, unproved = [], []
        for clause, functions in self.proofs().items():
            proved = any(proof.passed and not proof.unproved for proof in functions.values())
            if not proved:
                unproved.append(clause)
            text = self.texts[clause]
            if len(text) > _TEXT_WIDTH:
                text = text[: _TEXT_WIDTH - 1] + "…"
            table.append(f"{clause:<12} {'proved' if proved else 'none':<7} {text}")
            for function, proof in sorted(functions.items()):
                table.append(f"{'':<20} {function}{_cases(proof)}")
        total = len(self.texts)
        table.append(f"{total - len(unproved)} of {total} clauses are proved by tests of this run")
        if unproved:
            table.append(f"without proof: {', '.join(unproved)}")
        return table


def _cases(proof: _Proof) -> str:
    if proof.unproved:
        return f": {proof.unproved} of {proof.passed + proof.unproved} didn't pass, proves nothing"
    return f" ({proof.passed} cases)" if proof.passed > 1 else ""


_STATE: Final = pytest.StashKey[Clauses]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options."""
    group = parser.getgroup("clauses")
    group.addoption("--clauses", action="store_true", help="print the clauses and their proofs")
    group.addoption(
        "--clause", action="append", default=[], metavar="ID", help="run this clause's tests only"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Reads the clauses; keeps the books on the controller alone."""
    clauses = Clauses(read_clauses())
    config.stash[_STATE] = clauses
    unknown = [clause for clause in config.option.clause if clause not in clauses.texts]
    if unknown:
        raise pytest.UsageError(f"--clause: docs/clauses.md has no {', '.join(unknown)}")
    if config.option.clauses and not hasattr(config, "workerinput"):
        config.pluginmanager.register(clauses, "clause-proofs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts each test's clauses where reports carry them; deselects what --clause doesn't name."""
    wanted = set(config.option.clause)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        clauses = _clauses_of(item)
        if clauses:
            item.user_properties.append((_PROPERTY, " ".join(clauses)))
        (kept if not wanted or wanted & clauses.keys() else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test whose mark names a clause that doesn't exist. Not said at collection: under
    xdist only the workers collect, and they can't refuse a run."""
    texts = item.config.stash[_STATE].texts
    unknown = [clause for clause in _clauses_of(item) if clause not in texts]
    if unknown:
        pytest.fail(f"docs/clauses.md has no clause {', '.join(unknown)}", pytrace=False)


def _clauses_of(item: pytest.Item) -> dict[str, None]:
    """The identifiers of all the test's marks, in order, once each."""
    return dict.fromkeys(str(name) for mark in item.iter_markers("clause") for name in mark.args)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints the table."""
    if config.option.clauses:
        terminalreporter.section("clauses")
        for line in config.stash[_STATE].lines():
            terminalreporter.write_line(line)
