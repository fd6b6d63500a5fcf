"""`llm`, the command, with a model in `extra-openai-models.yaml`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.clients.sessions import DEADLINE_S, Answer, Ask, At, Refusal

OFFLINE: Final = Path(__file__).parent.parent / "offline"
COMMAND: Final = (sys.executable, "-m", "llm")
_STATUS: Final = re.compile(r"Error code: (\d+)")
_USAGE: Final = re.compile(r"Token usage: (\d+) input, (\d+) output")


class Llm:
    """A process a request. Its folder of settings, keys and logs is the test's own."""

    lacks: Mapping[str, str] = {
        "choices": "llm asks for one answer",
        "logprobs": "llm shows log-probabilities of the older completions API alone",
        "code": "llm prints the error's text",
        "streamed finish": "llm doesn't print why an answer ended",
    }
    kinds: Mapping[int, str] = dict.fromkeys((400, 401, 404, 429), "Error")
    too_long = "Error"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="llm-")

    def models(self, at: At) -> list[str]:
        key = () if at.key is None else ("--key", at.key)
        return self._run("openai", "endpoint", at.api, "--models", *key)[0].split()

    def chat(self, at: At, ask: Ask) -> Answer:
        return self._answer(self._prompt(at, ask))

    def stream(self, at: At, ask: Ask) -> Answer:
        printed, said = self._run(*self._prompt(at, ask), "--usage")
        usage = _USAGE.search(said)
        assert usage is not None, said
        return Answer((printed.removesuffix("\n"),), int(usage[1]), int(usage[2]))

    def abandon(self, at: At, ask: Ask, pieces: int) -> None:
        with self._started(*self._prompt(at, ask)) as process:
            assert process.stdout is not None
            assert len(process.stdout.read(pieces)) == pieces
            process.terminate()
            process.communicate(timeout=DEADLINE_S)

    def together(self, at: At, asks: Sequence[Ask]) -> list[Answer]:
        # Each with a log of its own: one that another process writes to is locked for the others.
        clients = [Llm() for _ in asks]
        with ThreadPoolExecutor(len(asks)) as threads:
            return list(threads.map(lambda client, ask: client.chat(at, ask), clients, asks))

    def refusal(self, at: At, ask: Ask) -> Refusal:
        with self._started(*self._prompt(at, ask)) as process:
            _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1, said
        status = _STATUS.search(said)
        return Refusal(said.partition(":")[0], int(status[1]) if status else None)

    def _prompt(self, at: At, ask: Ask) -> tuple[str, ...]:
        """A prompt's arguments. The server and the model are written into the settings."""
        settings = {"model_id": ask.model, "model_name": ask.model, "api_base": at.api}
        if at.key is not None:
            settings["api_key_name"] = "helios"
        # JSON is YAML.
        path = Path(self._folder.name) / "extra-openai-models.yaml"
        path.write_text(json.dumps([settings]))
        key = () if at.key is None else ("--key", at.key)
        options = [text for pair in ask.options().items() for text in ("-o", *map(str, pair))]
        return ("prompt", ask.text, "-m", ask.model, *key, *options)

    def _answer(self, prompt: Sequence[str]) -> Answer:
        printed, _ = self._run(*prompt, "--no-stream", "--json")
        (logged,) = json.loads(printed)
        (choice,) = logged["response_json"]["choices"]
        return Answer(
            (logged["response"],),
            logged["input_tokens"],
            logged["output_tokens"],
            (choice["finish_reason"],),
        )

    def _run(self, *arguments: str) -> tuple[str, str]:
        """What a command that succeeds prints to stdout and stderr."""
        with self._started(*arguments) as process:
            printed, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, said
        return printed, said

    def _started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {
            "LLM_USER_PATH": self._folder.name,
            "LLM_LOAD_PLUGINS": "",  # of plugins that are installed here, none
            "HELIOS_ONLY_LOOPBACK": "1",
            "PYTHONPATH": str(OFFLINE),
        }
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
