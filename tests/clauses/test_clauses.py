"""The table of clauses tells proofs from what only looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clauses.catalogue import read_clauses

pytest_plugins = ["pytester"]

SAMPLE = """
    import pytest

    @pytest.mark.clause("CORE-1", "CORE-2")
    def test_passes(): pass

    @pytest.mark.clause("CORE-3")
    @pytest.mark.parametrize("n", [1, 2])
    def test_passes_twice(n): pass

    @pytest.mark.clause("CORE-4")
    def test_fails(): assert False

    @pytest.mark.clause("CORE-5")
    def test_skips(): pytest.skip("not here")

    @pytest.mark.clause("CORE-6")
    @pytest.mark.xfail
    def test_is_expected_to_fail(): assert False

    @pytest.mark.clause("CORE-7")
    @pytest.mark.xfail
    def test_passes_unexpectedly(): pass

    @pytest.mark.clause("CORE-8")
    @pytest.mark.parametrize("n", [1, 2])
    def test_fails_once(n): assert n == 1

    @pytest.fixture
    def bad():
        yield
        raise RuntimeError

    @pytest.mark.clause("CORE-9")
    def test_cannot_clean_up(bad): pass

    def test_unmarked(): pass
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    pytester.makepyprojecttoml(
        f"[tool.pytest.ini_options]\npythonpath = {[str(Path(__file__).parents[2])]!r}\n"
        'markers = ["clause(*identifiers): clauses"]\n'
    )
    pytester.makeconftest("pytest_plugins = ['tests.clauses.plugin']")
    return pytester.runpytest_subprocess(*arguments)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_only_passing_tests_prove(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makepyfile(SAMPLE)
    shown = run(pytester, "--clauses", *workers).outlines
    proved = [line.split()[0] for line in shown if " proved " in line and line[0] == "C"]
    assert proved == ["CORE-1", "CORE-2", "CORE-3"]
    total = len(read_clauses())
    assert f"3 of {total} clauses are proved by tests of this run" in shown
    (unproved,) = (line for line in shown if line.startswith("without proof: "))
    assert unproved.startswith("without proof: CORE-4, CORE-5, CORE-6, CORE-7, CORE-8, CORE-9, ")
    tests = [line.strip() for line in shown if line.startswith(" " * 20)]
    name = "test_only_passing_tests_prove.py"
    assert f"{name}::test_passes_twice (2 cases)" in tests
    assert f"{name}::test_fails_once: 1 of 2 didn't pass, proves nothing" in tests
    assert f"{name}::test_cannot_clean_up: 1 of 1 didn't pass, proves nothing" in tests
    assert not any("test_unmarked" in test for test in tests)


def test_without_the_option_nothing_is_printed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SAMPLE)
    assert not any("clauses are proved" in line for line in run(pytester).outlines)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_an_unknown_identifier_is_an_error(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.clause("CORE-1", "CORE-999")
        def test_passes(): pass
        """
    )
    result = run(pytester, *workers)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*docs/clauses.md has no clause CORE-999*"])


def test_one_clause_s_tests_can_be_run_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SAMPLE)
    run(pytester, "--clause", "CORE-3").assert_outcomes(passed=2, deselected=9)
    result = run(pytester, "--clause", "CORE-999")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*docs/clauses.md has no CORE-999*"])


def test_every_area_of_the_page_is_read() -> None:
    clauses = read_clauses()
    areas = {"CORE": 13, "BOOT": 11, "CONTRACT": 9, "BIND": 13, "SPEC": 12}
    areas |= {"CACHE": 8, "FRONT": 17, "STOP": 6, "OBS": 7, "HTTP": 8}
    for area, least in areas.items():
        numbers = [int(name.split("-")[1]) for name in clauses if name.startswith(f"{area}-")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= least


def test_an_identifier_occurs_once(tmp_path: Path) -> None:
    page = tmp_path / "clauses.md"
    page.write_text("| CORE-1 | one |\n| CORE-1 | another |\n")
    with pytest.raises(ValueError, match="CORE-1 occurs more than once"):
        read_clauses(page)
