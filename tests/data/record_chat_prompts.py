"""Records the prompts that transformers makes: `chat_prompts.json` beside this.

Run it with the `parity` extra from the repository's root:
`python -m tests.data.record_chat_prompts`.
Each style of `tests/frontend/chat_styles` with each of its conversations made by hand, as text and,
for each kind of tokenizer, a digest of the ids (of `json.dumps(ids)`, SHA-256, 16 digits).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import tokenizers
import transformers

from tests.frontend.chat_styles.conversations import by_hand
from tests.frontend.chat_styles.styles import KINDS, STYLES
from tests.parity.chat_prompts import Reference

FILE: Final = Path(__file__).parent / "chat_prompts.json"


def record() -> None:
    """Writes the file."""
    prompts: dict[str, dict[str, Any]] = {}
    for name, style in STYLES.items():
        references = {kind: Reference(style, kind) for kind in KINDS}
        found = prompts.setdefault(name, {})
        for title, conversation in by_hand(style):
            found[title] = {"text": references[KINDS[0]].text(conversation)}
            for kind, reference in references.items():
                ids = json.dumps(reference.ids(conversation)).encode()
                found[title][kind] = hashlib.sha256(ids).hexdigest()[:16]
    content = {
        "tools": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__},
        "prompts": prompts,
    }
    FILE.write_text(json.dumps(content, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    record()
