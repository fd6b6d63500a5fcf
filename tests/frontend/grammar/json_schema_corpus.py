"""JSON schema's keywords, each with schemas and with values that fit them or don't.

After the idea of the public test suite: one entry a keyword of draft 2020-12, and of older drafts
where clients still send them. `json_schema_outcomes` finds out what becomes of them.
"""

from __future__ import annotations

from typing import Final

from tests.frontend.grammar.json_schema_cases import Keyword
from tests.frontend.grammar.json_schema_core import APPLICATORS, CORE
from tests.frontend.grammar.json_schema_formats import FORMATS, OTHERS
from tests.frontend.grammar.json_schema_validation import VALIDATION

KEYWORDS: Final[list[Keyword]] = [*CORE, *APPLICATORS, *VALIDATION, *FORMATS, *OTHERS]
