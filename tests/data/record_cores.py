"""Makes the stored cores, one of every format that was released, with what they must answer.

`python -m tests.data.record_cores NAME…` from the repository's root writes `cores/NAME/` and
`cores/NAME.json`. A core that is there already is never written again: that a newer Helios serves
it as it is, is what it is stored for. A new format gets a new name, and its row in `CORES`.

Weights are random and tiny. Prompts are chosen so that each answered token leads the second best
by half a nat at least in the float32 reference, hence holds on every kernel path.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from helios.core import OpenedCore, open_core
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import ReplayedToken, greedy_steps
from helios.schema import core_pb2
from ignition.preparation.export import Carrier
from ignition.preparation.prepare import Options, prepare
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import (
    SPECIAL_TOKENS,
    TOKENS,
    VARIANTS,
    Variant,
    truncate_to_bf16,
    weights,
    write_huggingface,
    write_safetensors,
)
from tests.core.logical_core import CORE_KEY, sealed_index, write_index
from tests.core.sample_core import KEY, PUBLIC_KEY
from tests.silence import Silent

FOLDER: Final = Path(__file__).parent / "cores"
NAMESPACE: Final = "tests"
ANSWER_TOKENS: Final = 12
SMALLEST_LEAD_NATS: Final = 0.5
LOGPROB_TOLERANCE_NATS: Final = 0.25
# One that fits a page, one that grows out of a page and of the window, one of several chunks.
PROMPT_LENGTHS: Final = (3, 28, 70)
# Makes the best token lead clearly.
_HEAD_SCALE: Final = 2.0


@dataclass(frozen=True)
class Stored:
    """One stored core: whose weights, how they are kept, in which carrier."""

    variant: str
    storage: WeightStorage = WeightStorage.AS_STORED
    carrier: str = "payload 2"


CORES: Final = {
    "payload-2": Stored("mistral"),
    "payload-2-int8": Stored("qwen2", WeightStorage.INT8),
    "payload-2-int4": Stored("qwen3", WeightStorage.INT4),
    "index-6": Stored("mistral", carrier="index 6"),
    "index-4": Stored("mistral", carrier="index 4"),
    # The first with programs that restore, snapshot, mix and score.
    "payload-2-operations": Stored("smollm"),
}


def main(names: list[str]) -> None:
    """Makes the named cores. Raises FileExistsError for one that is stored already."""
    for name in names:
        record(name, CORES[name])


def record(name: str, stored: Stored) -> None:
    """Writes one core and its answers."""
    target = FOLDER / name
    if target.exists():
        raise FileExistsError(f"{target}: stored cores are never written again")
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = write_checkpoint(Path(scratch) / "checkpoint", stored.variant)
        logical = stored.carrier == "index 6"
        options = Options(
            namespace=NAMESPACE,
            served_id=name,
            licence_terms="none: random weights",
            storage=stored.storage,
            carrier=Carrier.LOGICAL if logical else Carrier.PAYLOAD,
            max_active=3,
            prefill=(8, 32),
            decode=(1, 3),
            max_context=128,
        )
        sealed = stored.carrier == "index 4"
        prepared = Path(scratch) / "core" if sealed else target
        prepare(checkpoint, prepared, options, KEY, Silent())
        if sealed:
            _seal(prepared, target)
    core = open_core(target, accept=NAMESPACE, publisher_key=PUBLIC_KEY, core_key=CORE_KEY)
    described = {
        "carrier": stored.carrier,
        "namespace": NAMESPACE,
        "publisher_key": PUBLIC_KEY.hex(),
        "core_key": CORE_KEY.hex() if sealed else None,
        "digest": core.digest,
        "logprob_tolerance": LOGPROB_TOLERANCE_NATS,
        "cases": list(_cases(core)),
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(described) + "\n")


def write_checkpoint(folder: Path, name: str) -> Path:
    """A checkpoint of a very small variant whose head's rows are scaled: what the stored cores of
    that variant were prepared from, byte for byte."""
    variant: Variant = replace(
        VARIANTS[name], vocabulary=TOKENS, tied=False, hidden=32, heads=2, kv_heads=1,
        head_dim=16, intermediate=64, layers=2,
    )  # fmt: skip
    write_huggingface(folder, variant)
    tensors = weights(variant)
    tensors["lm_head.weight"] = truncate_to_bf16(tensors["lm_head.weight"] * _HEAD_SCALE)
    write_safetensors(folder / "model.safetensors", tensors, "BF16")
    return folder


def _seal(payload: Path, target: Path) -> None:
    """The content of a payload core in index version 4."""
    envelope = core_pb2.SignedEnvelope.FromString((payload / "core.pb").read_bytes())
    core = open_core(payload, accept=NAMESPACE, publisher_key=PUBLIC_KEY)
    contents = {r.id: core.read_resource(r.id, r.kind) for r in core.decoded.executables.values()}
    for name in core.decoded.weights:
        mapped = core.map_weights(name)
        contents[name] = bytes(mapped.content)
        mapped.close()
    body = core_pb2.CoreBody.FromString(envelope.body)
    write_index(target, *sealed_index(body, contents))


def _cases(core: OpenedCore) -> Iterator[dict[str, Any]]:
    """A prompt of each length with its answer."""
    runtime = ModelRuntime.load(core, target="reference")
    random = np.random.default_rng(11)
    try:
        for length in PROMPT_LENGTHS:
            answer: list[ReplayedToken] = []
            while len(answer) < ANSWER_TOKENS:
                prompt = random.integers(len(SPECIAL_TOKENS), TOKENS, length).tolist()
                answer = _clear_answer(runtime, prompt)
            yield {
                "prompt": prompt,
                "tokens": [token.token for token in answer],
                "logprobs": [round(token.logprob, 5) for token in answer],
                "leads": [round(token.lead, 3) for token in answer],
            }
    finally:
        runtime.close()


def _clear_answer(runtime: ModelRuntime, prompt: list[int]) -> list[ReplayedToken]:
    """The answer up to a token that doesn't lead clearly, or that would end it."""
    answer = []
    for token in greedy_steps(runtime, prompt, ANSWER_TOKENS):
        if token.lead < SMALLEST_LEAD_NATS or token.token < len(SPECIAL_TOKENS):
            break
        answer.append(token)
    return answer


if __name__ == "__main__":
    main(sys.argv[1:])
