"""The catalogue of mutations fits source and marks, and the runner can tell a proof from none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.clauses.catalogue import read_clauses
from tests.mutations.__main__ import Scratch, _Outcome, _verdict
from tests.mutations.catalogue import (
    ROOT,
    Mutation,
    MutationError,
    check,
    marked_clauses,
    mutated,
    read_mutations,
)

SAMPLE = Mutation("area", "module.py", "good = 1", "good = 2", ("tests",), "CORE-1")


def test_every_marked_clause_has_a_mutation_and_none_is_stale() -> None:
    assert check(read_mutations(), ROOT / "src", marked_clauses()) == []
    assert marked_clauses() <= read_clauses().keys()


def test_every_test_that_a_mutation_names_exists() -> None:
    for mutation in read_mutations():
        for test in mutation.tests:
            path, _, node = test.partition("::")
            assert (ROOT / path).exists(), mutation.title
            if node:
                assert f"def {node.partition('[')[0]}(" in (ROOT / path).read_text(), test


@pytest.mark.parametrize(("text", "count"), [("bad", 0), ("good = 1\ngood = 1", 2)])
def test_a_stale_mutation_is_told(tmp_path: Path, text: str, count: int) -> None:
    (tmp_path / "module.py").write_text(text)
    with pytest.raises(MutationError, match=f"stale, its old text occurs {count} times"):
        mutated(SAMPLE, tmp_path)
    assert any("stale" in wrong for wrong in check([SAMPLE], tmp_path, {"CORE-1"}))


def test_a_mutation_changes_one_place(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x\ngood = 1\ny\n")
    assert mutated(SAMPLE, tmp_path) == "x\ngood = 2\ny\n"
    with pytest.raises(MutationError, match="no such file"):
        mutated(SAMPLE, tmp_path / "elsewhere")


def test_clauses_and_mutations_must_cover_each_other(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("good = 1")
    assert check([SAMPLE], tmp_path, {"CORE-1", "CORE-2"}) == [
        "CORE-2: tests are marked, but no mutation"
    ]
    assert check([SAMPLE], tmp_path, set()) == ["CORE-1: has a mutation, but no test"]


def test_a_mutation_without_a_clause_needs_no_mark_and_may_need_modules(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("good = 1")
    (tmp_path / "kernels.toml").write_text(
        '[[mutation]]\nfile = "module.py"\nold = "1"\nnew = "2"\ntests = ["tests"]\n'
        'needs = ["json", "no_such_module"]\n'
    )
    (mutation,) = read_mutations(tmp_path)
    assert check([mutation], tmp_path, set()) == []
    assert mutation.title == "kernels module.py: 1"
    assert mutation.missing() == ["no_such_module"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('clause = "CORE-1"', "has \\['clause'\\], not"),
        ('clause = "A"\nfile = "f"\nold = "x"\nnew = "x"\ntests = []', "changes nothing"),
        ('clause = "A"\nfile = "f"\nold = "x"\nnew = ""\ntests = []\nmore = 1', "'more'"),
    ],
)
def test_an_entry_that_can_t_be_meant_is_refused(tmp_path: Path, entry: str, said: str) -> None:
    (tmp_path / "area.toml").write_text(f"[[mutation]]\n{entry}\n")
    with pytest.raises(MutationError, match=f"area.toml, mutation 1: .*{said}"):
        read_mutations(tmp_path)


def test_marks_are_read_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\npytestmark = pytest.mark.clause('CORE-1')\n"
        "@pytest.mark.clause('CORE-2', 'CORE-3')\ndef test(): pass\n"
        "SAMPLE = \"@pytest.mark.clause('CORE-4')\"\n"
    )
    assert marked_clauses(tmp_path) == {"CORE-1", "CORE-2", "CORE-3"}


NODE = "tests/test_a.py::test[a b - c]"


@pytest.mark.parametrize(
    ("status", "output", "failed", "hangs", "killer"),
    [
        (1, f"FAILED {NODE} - AssertionError", [NODE], False, NODE),
        (0, "3 passed", [], False, ""),
        (1, f"ERROR {NODE} - RuntimeError", [NODE], False, ""),
        (2, "1 error", [], False, ""),
        (5, "no tests ran", [], False, ""),
        (1, f"FAILED {NODE} - Failed: Timeout (>30.0s)", [NODE], False, ""),
        (1, f"FAILED {NODE} - Failed: Timeout (>30.0s)", [NODE], True, NODE),
    ],
)
def test_only_a_failed_test_is_a_proof(
    status: int, output: str, failed: list[str], hangs: bool, killer: str
) -> None:
    mutation = Mutation("area", "f", "a", "b", (), "CORE-1", hangs)
    verdict = _verdict(mutation, _Outcome(status, output, failed), 1.0)
    assert verdict.killer == killer
    assert bool(verdict.reason) != bool(killer)


def test_the_scratch_copy_is_what_is_imported(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "0")
    mutation = Mutation(
        "frames",
        "helios/core/body.py",
        "if version not in known:",
        "if False:",
        ("tests/core/test_core_open.py::test_other_format_versions_are_named",),
        "CORE-13",
    )
    verdict = scratch.judge(mutation)
    assert verdict.killer.startswith(mutation.tests[0]), verdict.reason
    assert "if False:" not in (scratch.source / mutation.file).read_text()
    harmless = replace(mutation, new=f"{mutation.old}  #")
    assert "survived" in scratch.judge(harmless).reason
    # Without a clause, marks don't matter.
    unmarked = scratch.judge(replace(mutation, clause=""))
    assert unmarked.killer.startswith(mutation.tests[0]), unmarked.reason
