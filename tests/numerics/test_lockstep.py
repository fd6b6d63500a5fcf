"""Every kernel of the cpu library, on every instruction set, against the reference: launch by
launch inside whole programs, with the differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helios import _native
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.cpu import CpuDevice
from helios.runtime.every_program import run_every_program
from helios.runtime.geometry import Operation
from helios.runtime.reference.differ import LockstepDevice
from helios.runtime.rounds import LaneAdmission, LaneExtras, LaneWork, SamplingParameters
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import TOKENS, VARIANTS, wide, write_gguf
from tests.model_parts import TINY_EXTENTS, ModelParts, capture, capture_tiny
from tests.replaying import run_round, smallest

BF16_VARIANTS = [(variant, WeightStorage.BF16) for variant in VARIANTS]
QUANTISED = [("llama", WeightStorage.INT8), ("qwen2", WeightStorage.INT4)]


def run_lanes(parts: ModelParts, device: LockstepDevice) -> None:
    """Three lanes: two chunks of a prompt, seeded and greedy, then DECODE rounds."""
    runtime = parts.load(device=device, request_slots=4, cache_tokens=512, snapshots=2)
    geometry = runtime.geometry
    source = np.random.default_rng(11)
    prompts = [source.integers(3, TOKENS, count).tolist() for count in (40, 33, 70)]
    pages = [range(lane * 3, lane * 3 + 3) for lane in range(3)]
    samplings = [
        SamplingParameters(temperature=0.0),
        SamplingParameters(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=2**63 + 5),
        SamplingParameters(
            temperature=1.2, seed=3, repetition_penalty=1.3, presence_penalty=0.2,
            frequency_penalty=-0.3, min_tokens=50, logit_bias=((5, 3.0), (9, -2.0)),
            allowed_tokens=tuple(range(0, TOKENS, 2)), bad_words=((8,), (6, 10)), stop_ids=(4,),
            top_logprobs=7,
        ),
    ]  # fmt: skip
    run_round(runtime, smallest(geometry, Operation.INITIALIZE, 3), [
        LaneWork(lane + 1, 1, 0, (), False, (), LaneAdmission(samplings[lane], 100, 0, (2,)),
                 extras=LaneExtras(history=prompts[lane]))
        for lane in range(3)
    ])  # fmt: skip
    for start, end in ((0, 38), (38, 80)):
        lanes = [
            LaneWork(lane + 1, 1, start, tuple(prompt[start:end]), len(prompt) <= end, pages[lane])
            for lane, prompt in enumerate(prompts)
            if len(prompt) > start
        ]
        tokens = sum(len(lane.tokens) for lane in lanes)
        run_round(runtime, smallest(geometry, Operation.PREFILL, 3, tokens), lanes)
    alive = [0, 2]
    for step in range(3):
        done = run_round(runtime, smallest(geometry, Operation.DECODE, 2), [
            LaneWork(lane + 1, 1, len(prompts[lane]) + step, (), True, pages[lane])
            for lane in alive
        ])  # fmt: skip
        assert all(lane.tokens for lane in done.lanes)
    run_every_program(runtime)
    runtime.close()


def check(parts: ModelParts, instruction_set: str) -> None:
    if instruction_set not in _native.instruction_sets():
        pytest.skip(f"this machine doesn't run {instruction_set}")
    device = LockstepDevice(CpuDevice(DeviceOptions(2, instruction_set)))
    run_lanes(parts, device)
    assert device.first_difference is None, str(device.first_difference)
    assert device.compared > 200


@pytest.mark.parametrize("instruction_set", ["avx512", "avx2", "portable"])
@pytest.mark.parametrize(("variant", "storage"), [*BF16_VARIANTS, *QUANTISED])
def test_storages_of_checkpoints(
    tmp_path: Path, variant: str, storage: WeightStorage, instruction_set: str
) -> None:
    check(capture_tiny(tmp_path, variant, storage), instruction_set)


@pytest.mark.parametrize("instruction_set", ["avx512", "avx2", "portable"])
@pytest.mark.parametrize("stored", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q6_K"])
def test_as_stored_blocks(tmp_path: Path, stored: str, instruction_set: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", wide("llama"), storage=stored)
    check(capture(path, extents=TINY_EXTENTS), instruction_set)
