"""What becomes of JSON schema's keywords: the table of `docs/structured-output.md`.

    PYTHONPATH=src:. python benchmarks/json_schema.py

Every keyword's cases are compiled and their values tried; what is wrong is listed behind the table,
and the exit status is 1 then.
"""

from __future__ import annotations

import sys

from tests.frontend.grammar.json_schema_outcomes import Outcome, outcomes, table


def main() -> int:
    """Prints the table."""
    found = outcomes()
    print(table(found))
    counts = {outcome: sum(one.outcome is outcome for one in found) for outcome in Outcome}
    print(", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()))
    problems = [problem for one in found for problem in one.problems]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
