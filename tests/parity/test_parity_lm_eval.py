"""lm-eval's own client of completions servers against a real server: its log-likelihoods, and which
of them are greedy, held against transformers' scores of the same checkpoint.

The client runs as people run it, as a command. Weights are float32 and stored as they are, so that
what is left between both sides is the order of sums, and the cache's 16-bit keys and values.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("lm_eval")

import torch
import transformers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import write_huggingface
from tests.parity import transformers_model
from tests.replaying import log_softmax
from tests.server.real import NAMESPACE, ServerProcess, server_process
from tests.silence import Silent

TASKS = Path(__file__).parent / "lm_eval_tasks"
# Nats a token; what is measured is a tenth of it.
LIMIT = 1e-2
DEADLINE_S = 240


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint as transformers has it, and its folder."""

    folder: Path
    tokenizer: Any
    model: Any

    def logprobs(self, tokens: list[int]) -> np.ndarray[Any, Any]:
        """Of every token after each prefix: `f32 [tokens, vocabulary]`."""
        result: np.ndarray[Any, Any] = log_softmax(transformers_model.logits(self.model, tokens))
        return result


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("lm_eval") / "tiny"
    write_huggingface(folder, "llama", seed=3, dtype="F32")
    # As transformers 5 reads it.
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    return Checkpoint(folder, transformers.AutoTokenizer.from_pretrained(folder), model)


@pytest.fixture(scope="module")
def server(
    checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    core = tmp_path_factory.mktemp("cores") / "core"
    options = Options(NAMESPACE, "tiny", max_active=4, prefill=(32,), scored_prefill=(24,))
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    prepare(checkpoint.folder, core, options, key, Silent())
    with server_process(core, "--threads", "2") as running:
        yield running


def evaluate(
    server: ServerProcess,
    checkpoint: Checkpoint,
    task: str,
    folder: Path,
    *,
    batch_size: int = 1,
    **arguments: Any,
) -> list[dict[str, Any]]:
    """Runs lm-eval on a task; its samples."""
    given = {
        "model": "tiny",
        "base_url": f"{server.url}/v1/completions",
        "tokenizer_backend": "huggingface",
        "tokenizer": checkpoint.folder,
        "max_length": 512,
        "max_retries": 1,
        **arguments,
    }
    command = [
        *(sys.executable, "-m", "lm_eval", "run", "--model", "local-completions"),
        *("--model_args", ",".join(f"{name}={value}" for name, value in given.items())),
        *("--tasks", task, "--include_path", TASKS, "--batch_size", batch_size),
        *("--log_samples", "--output_path", folder),
    ]
    offline = {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    ended = subprocess.run(
        list(map(str, command)), env=os.environ | offline, cwd=TASKS, capture_output=True,
        text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]
    (written,) = folder.rglob(f"samples_{task}_*.jsonl")
    return [json.loads(line) for line in written.read_text().splitlines()]


@pytest.mark.parametrize(
    "arguments",
    [
        {"tokenized_requests": True},
        {"tokenized_requests": True, "batch_size": 5, "num_concurrent": 3},
        {"tokenized_requests": False, "batch_size": 3},
    ],
    ids=["ids", "batches of ids", "batches of texts"],
)
def test_log_likelihoods_are_transformers_own(
    server: ServerProcess, checkpoint: Checkpoint, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    samples = evaluate(server, checkpoint, "helios_choices", tmp_path, **arguments)
    encode = checkpoint.tokenizer.encode
    found, largest = [], 0.0
    for sample in samples:
        asked = sample["arguments"]
        pairs = [tuple(asked[name].values()) for name in sorted(asked)]
        for (context, continuation), (told,) in zip(pairs, sample["resps"], strict=True):
            whole, before = encode(context + continuation), len(encode(context))
            said = whole[before:]
            scores = checkpoint.logprobs(whole[:-1])[before - 1 :]
            expected = float(scores[np.arange(len(said)), said].sum())
            error = abs(float(told[0]) - expected)
            assert error <= LIMIT * len(said), (context, continuation)
            greedy = bool((scores.argmax(-1) == said).all())
            assert told[1] == str(greedy), (context, continuation)
            second, best = np.sort(scores, axis=-1)[:, -2:].T
            behind = best - scores[np.arange(len(said)), said]
            margin = (best - second).min() if greedy else behind.max()
            assert margin > 2 * LIMIT, "too close to tell"
            found.append(greedy)
            largest = max(largest, error / len(said))
    assert found.count(True) > 4
    assert found.count(False) > 4
    print(f"\n{len(found)} log-likelihoods, {largest:.1e} nats a token off at most")


def test_what_is_generated_is_transformers_greedy_choice(
    server: ServerProcess, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    samples = evaluate(server, checkpoint, "helios_continued", tmp_path, batch_size=4)
    assert len(samples) == 6
    for sample in samples:
        context = sample["arguments"]["gen_args_0"]["arg_0"]
        tokens = checkpoint.tokenizer.encode(context)
        start = len(tokens)
        while len(tokens) < start + 12:
            tokens.append(int(checkpoint.logprobs(tokens)[-1].argmax()))
            if tokens[-1] in (0, 2):
                break
        said = checkpoint.tokenizer.decode(tokens[start:], skip_special_tokens=True)
        assert sample["resps"] == [[said.split("\n")[0]]]
