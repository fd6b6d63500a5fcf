"""The stored cores of tests/data/cores and what each must answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helios.core import OpenedCore, open_core
from helios.engine import Engine, Generation, GenerationOptions

FOLDER = Path(__file__).resolve().parents[1] / "data" / "cores"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@dataclass(frozen=True)
class Case:
    """A prompt and its answer: tokens, their logprobs and leads in nats, by the reference."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    leads: list[float]


class StoredCore:
    """One of them, by name."""

    def __init__(self, name: str) -> None:
        self.folder = FOLDER / name
        described: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
        self.carrier: str = described["carrier"]
        self.namespace: str = described["namespace"]
        self.digest: str = described["digest"]
        self.tolerance: float = described["logprob_tolerance"]
        self.cases = [Case(**case) for case in described["cases"]]
        self.publisher_key = bytes.fromhex(described["publisher_key"])
        self.core_key: str | None = described["core_key"]

    def open(self) -> OpenedCore:
        return open_core(
            self.folder,
            accept=self.namespace,
            publisher_key=self.publisher_key,
            core_key=bytes.fromhex(self.core_key) if self.core_key else None,
        )

    def key_file(self, folder: Path) -> Path | None:
        """A file with the core's key, if it needs one."""
        if self.core_key is None:
            return None
        path = folder / "core.key"
        path.write_text(self.core_key)
        return path

    def serve(self, scratch: Path, **options: Any) -> list[Generation]:
        """What an engine answers to all prompts at once, its oracle replayed first."""
        engine = Engine.open(
            self.folder,
            accept=self.namespace,
            publisher_key=self.publisher_key,
            core_key=self.key_file(scratch),
            threads=1,
            **options,
        )
        with engine:
            wanted = GenerationOptions(max_tokens=len(self.cases[0].tokens), temperature=0)
            return engine.generate([case.prompt for case in self.cases], wanted)
