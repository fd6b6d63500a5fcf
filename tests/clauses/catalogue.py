"""The clauses that docs/clauses.md lists. Read by the plugin beside this file and by
`tests.mutations`; knows nothing of tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CLAUSES_PAGE: Final = Path(__file__).parents[2] / "docs" / "clauses.md"
_ROW: Final = re.compile(r"^\| ([A-Z]+-[0-9]+) \| (.+) \|$", re.MULTILINE)


def read_clauses(page: Path = CLAUSES_PAGE) -> Mapping[str, str]:
    """Identifier → text, in the page's order. Raises ValueError for an identifier used twice."""
    rows = _ROW.findall(page.read_text(encoding="utf-8"))
    clauses = dict(rows)
    if len(clauses) != len(rows):
        repeated = {name for name, _ in rows if [n for n, _ in rows].count(name) > 1}
        raise ValueError(f"{page}: {', '.join(sorted(repeated))} occurs more than once")
    return clauses
