"""Compares a cuda core's logits with transformers' on the same weights, for `scripts/gpu-check`.

    python scripts/gpu_logits.py CORE CONFIG_FOLDER

The core answers prompts greedily; at each token its logits are held against those that transformers
computes in float32, on the GPU too, from the weights read back out of the core. Bounds are those of
the comparison on the cpu: mean KL of next-token distributions, and the logits' relative error.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from gpu_agree import TARGET, opened
from tests.parity.transformers_model import state_dict

from helios.core import ResourceKind
from helios.runtime.capacities import Capacities
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import greedy_steps
from helios.runtime.targets import deployed_rank
from helios.schema import execution_pb2

PROMPTS: Final = (1, 30, 100, 300, 700)
TOKENS: Final = 24
# Bounds of bf16 weights: mean KL, and the logits' relative error. Tiny random models, whose logits
# are sums of few large terms, make more of the same rounding.
BOUNDS: Final = (1e-4, 1e-2)
TINY_BOUNDS: Final = (1e-3, 2e-2)
DEVICE: Final = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Parts:
    """What `state_dict` reads."""

    manifest: execution_pb2.ExecutionManifest
    weights: memoryview


def reference_model(core: Any, config_folder: Path) -> Any:
    """transformers' model with the core's weights, float32, on the GPU."""
    rank = deployed_rank(core, TARGET)
    manifest = execution_pb2.ExecutionManifest.FromString(
        core.read_resource(rank.manifest_resource, ResourceKind.EXECUTION_MANIFEST)
    )
    config = transformers.AutoConfig.from_pretrained(config_folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="eager"
        )
    with closing(core.map_weights(rank.weight_resources[0], verify=False)) as mapped:
        weights = state_dict(Parts(manifest, mapped.content), config)  # type: ignore[arg-type]
    model = model.to_empty(device=DEVICE)
    model.load_state_dict(weights, strict=True)
    # What isn't in a state dict: made again, since the first was made of nothing.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(DEVICE)
    return model.eval()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("core", type=Path)
    parser.add_argument("config", type=Path)
    parser.add_argument("--tiny", action="store_true", help="bounds of tiny random models")
    parser.add_argument("--target", default=TARGET, help="what answers; default: %(default)s")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    core = opened(arguments.core)
    vocabulary = core.contract.model.vocabulary.sampled_tokens
    random = np.random.default_rng(3)
    longest = core.contract.max_context_tokens - TOKENS
    sequences, found = [], []
    runtime = ModelRuntime.load(
        core, target=arguments.target, capacities=Capacities(request_slots=1)
    )
    with closing(runtime):
        for length in PROMPTS:
            prompt = random.integers(3, vocabulary, min(length, longest)).tolist()
            rows, tokens = [], []
            for step in greedy_steps(runtime, prompt, TOKENS):
                rows.append(runtime.read_buffer("logits")[0])
                tokens.append(step.token)
            sequences.append((prompt, tokens))
            found.append(np.stack(rows))
    model = reference_model(core, arguments.config)
    divergences, errors = [], []
    for (prompt, tokens), mine in zip(sequences, found, strict=True):
        ids = torch.tensor([[*prompt, *tokens[:-1]]], device=DEVICE)
        with torch.no_grad():
            exact = model(ids, use_cache=False).logits[0, len(prompt) - 1 :].double()
        got = torch.from_numpy(mine).to(DEVICE).double()[:, : exact.shape[1]]
        logp, logq = torch.log_softmax(exact, -1), torch.log_softmax(got, -1)
        divergences += (logp.exp() * (logp - logq)).sum(-1).tolist()
        errors.append(float((got - exact).norm() / exact.norm()))
    mean, error = float(np.mean(divergences)), max(errors)
    print(
        f"{len(divergences)} tokens: mean KL {mean:.2e} (largest {max(divergences):.2e}),"
        f" relative error of logits {error:.2e} at most"
    )
    largest_kl, largest_error = TINY_BOUNDS if arguments.tiny else BOUNDS
    sys.exit(bool(not mean <= largest_kl or not error <= largest_error))


if __name__ == "__main__":
    main()
