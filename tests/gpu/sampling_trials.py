"""Trials of sampling and scoring: tokens and ranks those of the reference, and equal bits in any
company. Vocabularies from one token to more than any model has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from helios.runtime.reference.sampling_rows import SAMPLING_ROW
from tests.gpu.trials import Build, Company, Run, SameBits, Trial, in_company, only
from tests.native import request_cases, sampling
from tests.native.company import SCORES
from tests.native.launches import Case
from tests.native.sampled_lanes import every_parameter

_VOCABULARIES: Final = (1, 17, 64, 600, 4999, 49_152, 151_936)
_DRAWN: Final[dict[str, Any]] = {"temperature": 0.9, "top_p": 0.9, "top_k": 100, "min_p": 0.001}
_WAYS: Final[dict[str, dict[str, Any]]] = {
    "greedy": {"temperature": 0.0},
    "all": {"temperature": 0.9},
    "nucleus": _DRAWN,
}


def _ties(rng: np.random.Generator) -> Case:
    case = every_parameter(int(rng.integers(1 << 30)), 4999)
    case.operands["logits"][:] = np.round(case.operands["logits"])
    return case


def _broken(rng: np.random.Generator) -> Case:
    """Logits that no model should have."""
    case = every_parameter(int(rng.integers(1 << 30)), 3000)
    logits = case.operands["logits"]
    logits[0] = np.nan
    logits[1] = -np.inf
    logits[2, 5:] = np.nan
    logits[3, 7] = np.inf
    logits[4] = np.inf
    logits[5] = np.finfo(np.float32).max
    logits[6, ::2] = -np.inf
    logits[7, :130] = np.nan
    return case.with_operands(logits=np.roll(logits, int(rng.integers(12)), axis=0))


def _equal(rng: np.random.Generator) -> Case:
    """A draw reads the random number itself."""
    case = request_cases.sample(rng, rows=64, capacity=64, vocab=4096, temperature=1)
    case.operands["logits"][:] = 0
    lengths = rng.integers(1, 50, 64).astype(np.int32)
    return case.with_operands(query_length=lengths)


def _to_lanes(rng: np.random.Generator, temperature: float) -> Case:
    case = request_cases.sample(rng, rows=5, capacity=6, vocab=5000, temperature=temperature)
    return case.with_operands(lane=np.array([2, 0, 9, 4, -1, 3], np.int32))


def _hostile_rows(rng: np.random.Generator) -> Case:
    vocab = int(rng.choice([5, 31, 300, 2600]))
    case = sampling.sample_processed(
        rng, capacity=5, vocab=vocab, grammar=bool(rng.integers(2)),
        temperature=float(rng.integers(3)),
    )  # fmt: skip
    rows = case.operands["sampling"].view(SAMPLING_ROW).reshape(-1)
    for name in ("top_logprobs", "stops", "biases", "bad_tokens"):
        rows[name] = rng.choice([-(2**31), -1, 0, 3, 2**31 - 1], 5)
    rows["bias_tokens"][:, ::2] = rng.integers(-5, vocab + 5, 256)
    rows["bad_words"][:, :30] = rng.integers(-2, 9, 30)
    case.operands["slot"][:2] = [-1, 5]
    return case


def _scored(rng: np.random.Generator, vocab: int) -> Trial:
    """A score alone and with ranks, in company: the same bits."""
    case = request_cases.score_ranked(rng, rows=9, capacity=9, vocab=vocab, stride=vocab + 5)
    case.operands["wanted"][:3] = [-1, 20, 21]
    if vocab > 1:
        case.operands["logits"][3, :vocab] = rng.choice(case.operands["logits"][3, :2], vocab)
    trial = _crowd(case, [Company([4], 1), Company([8, 3, 1], 5)])
    plain = {name: case.operands[name] for name in ("rows", "target", "logits", "out")}
    runs = {**trial.runs, "plain": Run((Case("score", plain, case.integers),))}
    return Trial(runs, [*trial.same, SameBits("plain", "out", ..., ...)])


def _crowd(case: Case, companies: list[Company]) -> Trial:
    outputs = [name for name in (*SCORES, "tokens", "logprobs") if name in case.operands]
    return in_company(case, outputs, companies)


def _in_company(make: Callable[[np.random.Generator], Case], rows: int) -> Build:
    def build(rng: np.random.Generator) -> Trial:
        case = make(rng)
        few = rng.choice(rows, 5, replace=False).tolist()
        found = [
            Company([rows - 1], 1),
            Company(few, 9),
            Company(rng.permutation(rows).tolist(), rows),
        ]
        return _crowd(case, found)

    return build


def _sampled(rng: np.random.Generator, vocab: int) -> Trial:
    """All parameters; a score of the token that is found has its logprob's bits."""
    case = every_parameter(int(rng.integers(1 << 30)), vocab)
    lanes = case.integers["capacity"]
    return _crowd(case, [Company([lanes - 1], 1), Company([3, 0, 7], 5)])


def trials() -> dict[str, Build]:
    """All of them by name."""
    found: dict[str, Build] = {}
    for vocab in _VOCABULARIES:
        found[f"sample {vocab}"] = partial(_sampled, vocab=vocab)
        found[f"score {vocab}"] = partial(_scored, vocab=vocab)
    for seed in range(3):
        found[f"sample ties #{seed}"] = only(_ties)
        found[f"sample broken #{seed}"] = only(_broken)
        found[f"process hostile rows #{seed}"] = only(_hostile_rows)
    found["sample equal logits"] = only(_equal)
    for temperature in (0.0, 0.9):
        found[f"sample to lanes {temperature}"] = only(partial(_to_lanes, temperature=temperature))
    for name, way in _WAYS.items():
        many = partial(request_cases.sample, rows=300, capacity=300, vocab=3001, **way)
        found[f"sample many {name}"] = _in_company(many, 300)
        for grammar in (False, True):
            kind = " grammar" if grammar else ""
            few = partial(sampling.sample_processed, capacity=12, vocab=4999, stride=5002,
                          grammar=grammar, **way)  # fmt: skip
            found[f"process {name}{kind}"] = _in_company(few, 12)
        large = partial(sampling.sample_processed, capacity=6, vocab=151_936, **way)
        found[f"process {name} 151936"] = _in_company(large, 6)
        crowd = partial(sampling.sample_processed, capacity=150, vocab=608, **way)
        found[f"process many {name}"] = _in_company(crowd, 150)
    return found
