"""The roofline of a step on a GPU, term by term: what each part takes on the device, and its floor.

    python benchmarks/gpu_roofline.py FOLDER [--lanes 1,8,32,128] [--prompts 512] [--context 192]

FOLDER is what `gpu_replay.py pack` wrote. A term is what the round gets shorter by when the term's
nodes are left out of its graph, by the GPU's own clock; the whole round and every shorter one take
turns, medians. The floor is the larger of bytes over COPY_TB_S and operations over PRODUCT_TFLOP_S,
both measured by `gpu_accumulation.py`. What ends a round (counts, commit) is left out of all, so
that every round is the same.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from gpu_replay import Parts
from helios.runtime.device import FRAMES, DeviceOptions
from helios.runtime.devices.cuda.device import CudaDevice
from helios.runtime.geometry import Operation, ProgramInfo
from helios.runtime.manifest import Launch, Program
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.reference.steps import cut
from helios.runtime.rounds import LaneAdmission, LaneWork, Round, SamplingParameters
from prerequisites import needs_gpu

COPY_TB_S = 4.2
PRODUCT_TFLOP_S = 785.0
ENDING = frozenset({"commit", "count_sampled"})
# Where a projection does it as well, f16 is all that is written.
ROTATION = "rope_and_cache_f16"
# What they write says which rows there are: without them the others would compute something else.
SELECTING = frozenset({"select_last", "select_attending"})
INDEXING = SELECTING | {"scatter_i32", "load_pending", "embed"}
WAIT_MS = 60_000


@dataclass(frozen=True)
class Term:
    """A part of a round: nodes that do the same work in every layer."""

    name: str
    nodes: int
    floor_s: float


def attributes(launch: Launch) -> Mapping[str, int]:
    """A launch's integers by name."""
    return dict(zip(launch.kernel.integers, launch.integers, strict=True))


def term_of(done: Sequence[Launch]) -> str:
    """The name of the part that launches belong to which are done together."""
    return ", ".join(map(_name, done))


def _name(launch: Launch) -> str:
    found = attributes(launch)
    if launch.kernel.name.startswith("linear"):
        return f"{launch.kernel.name} {found['outputs']}x{found['width']}"
    return launch.kernel.name


def floor_s(launch: Launch, rows: int, context: int, out_nbytes: int = 4) -> float:
    """The least time of a launch with so many live rows; 0 where nothing large moves. An element
    that a projection writes has `out_nbytes`."""
    found = attributes(launch)
    if launch.kernel.name.startswith("linear"):
        matrices = 2 if "silu" in launch.kernel.name else 1
        weights = matrices * found["outputs"] * found["width"]
        moved = 2 * weights + rows * (2 * found["width"] + out_nbytes * found["outputs"])
        return max(moved / COPY_TB_S / 1e12, 2 * rows * weights / PRODUCT_TFLOP_S / 1e12)
    if launch.kernel.name == "attention_f16":
        heads = found["kv_heads"] * found["head_dim"]
        if found["lane_capacity"]:  # a prompt: its triangle
            work = 2 * rows * rows * found["q_heads"] * found["head_dim"]
            return work / PRODUCT_TFLOP_S / 1e12
        return rows * context * 4 * heads / COPY_TB_S / 1e12
    return 0.0


class VariantDevice(CudaDevice):
    """A GPU that also loads programs which lack some of their nodes."""

    def __init__(self, parts: Parts, chosen: Sequence[str]) -> None:
        manifest = parts.manifest
        super().__init__(manifest.target, DeviceOptions(), manifest.cuda, parts.modules)
        self._chosen = chosen
        self.variants: dict[str, dict[str, int]] = {}
        self.nodes: dict[str, dict[str, int]] = {}

    def load(self, programs: Sequence[Program]) -> None:
        """Programs, then of each chosen one what is left without a term."""
        every = list(programs)
        for program in programs:
            if program.name not in self._chosen:
                continue
            counts: dict[str, int] = defaultdict(int)
            for _, done in cut(program):
                if not is_left(done):
                    counts[term_of(done)] += len(done[-1].nodes)
            self.nodes[program.name] = dict(counts)
            found = self.variants[program.name] = {}
            for term in ("", *counts):
                found[term] = len(every)
                kept = tuple(_without(program, term))
                every.append(replace(program, name=f"{program.name} {term}", launches=kept))
        super().load(every)


def is_left(done: Sequence[Launch]) -> bool:
    """Whether launches are never timed: what finds the rows, what ends a round."""
    return any(launch.kernel.name in INDEXING | ENDING for launch in done)


def _without(program: Program, term: str) -> Iterator[Launch]:
    """Its launches without the nodes of a term and of what ends a round. The node that comes after
    them waits for all before it: what it reads early was to be written before those left out."""
    behind = False
    for _, done in cut(program):
        *others, last = done
        yield from others
        if last.kernel.name in ENDING or term_of(done) == term:
            behind = True
            yield replace(last, nodes=())
        elif behind and last.nodes:
            first, *rest = last.nodes
            behind = False
            yield replace(last, nodes=(replace(first, programmatic=False), *rest))
        else:
            yield last


class Rounds:
    """Brings a runtime to a state in which a program's round can be repeated."""

    def __init__(self, runtime: ModelRuntime, device: VariantDevice) -> None:
        self._runtime = runtime
        self._device = device
        self._generation = 0
        self._sequence = 0
        self._frame = 0
        self._draw = random.Random(1)

    def decode(self, program: ProgramInfo, lanes: int, context: int) -> None:
        """Lanes with a context, and one round of the program packed into a frame."""
        self._begin(lanes)
        for lane in range(lanes):
            self._run(self._smallest(context), [self._prompt(lane, context)])
        self._run(program, [self._work(lane, context, ()) for lane in range(lanes)])

    def prompt(self, program: ProgramInfo, tokens: int) -> None:
        """One lane's prompt."""
        self._begin(1)
        self._run(program, [self._prompt(0, tokens)])

    def repeat(self, variant: int) -> float:
        """Seconds that the packed round takes as another program, by the GPU's clock."""
        self._sequence += 1
        self._device.submit(variant, self._frame, self._sequence)
        self._device.wait(self._sequence, WAIT_MS)
        start, end = self._device.timing(self._sequence)
        return (end - start) / 1e9

    def _begin(self, lanes: int) -> None:
        self._generation += 1
        admission = LaneAdmission(SamplingParameters(temperature=0.0), 1 << 20, 0, ())
        program = self._runtime.geometry.of(Operation.INITIALIZE)[-1]
        for first in range(0, lanes, program.batch_capacity):
            some = range(first, min(lanes, first + program.batch_capacity))
            self._run(program, [self._work(lane, 0, (), admission) for lane in some])

    def _smallest(self, tokens: int) -> ProgramInfo:
        every = self._runtime.geometry.of(Operation.PREFILL)
        return next(p for p in every if p.packed_token_capacity >= tokens)

    def _prompt(self, lane: int, tokens: int) -> LaneWork:
        return self._work(lane, 0, [self._draw.randrange(100, 40_000) for _ in range(tokens)])

    def _work(
        self, slot: int, start: int, prompt: Sequence[int], admission: LaneAdmission | None = None
    ) -> LaneWork:
        geometry = self._runtime.geometry
        share = geometry.cache_pages // geometry.request_slots
        # A long prompt, which is alone, takes other slots' share as well.
        wanted = -(-(start + max(1, len(prompt)) + 1) // geometry.page_tokens)
        pages = min(geometry.cache_pages - slot * share, wanted)
        return LaneWork(
            slot, self._generation, start, prompt, admission is None,
            range(slot * share, slot * share + pages), admission,
        )  # fmt: skip

    def _run(self, program: ProgramInfo, lanes: Sequence[LaneWork]) -> None:
        # The rounds that were repeated since went past the runtime.
        self._runtime._submitted = max(self._runtime._submitted, self._sequence)
        self._sequence = self._runtime.submit(Round(program.index, tuple(lanes)))
        self._frame = self._sequence % FRAMES
        self._runtime.wait(self._sequence, WAIT_MS)
        self._runtime.read(self._sequence)


def report(
    device: VariantDevice, rounds: Rounds, program: Program, title: str, terms: Sequence[Term],
    passes: int,
) -> None:  # fmt: skip
    """Prints one round's table."""
    variants = device.variants[program.name]
    whole: list[float] = []
    shorter: dict[str, list[float]] = defaultdict(list)
    for number in range(passes + 1):
        for term in terms:
            full = rounds.repeat(variants[""])
            less = rounds.repeat(variants[term.name])
            if number:
                whole.append(full)
                shorter[term.name].append(full - less)
    total = median(whole)
    spread = f"({min(whole) * 1e6:.1f}..{max(whole) * 1e6:.1f})"
    print(f"\n{title}: {total * 1e6:.1f} us {spread}\n")
    print("| term | nodes | us | share | us a node | floor, us | of it |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for term in terms:
        seconds = median(shorter[term.name])
        reached = 100 * term.floor_s / seconds if seconds > 0 else float("nan")
        floor = f"{term.floor_s * 1e6:.1f} | {reached:.0f} %"
        print(
            f"| {term.name} | {term.nodes} | {seconds * 1e6:.1f} | {100 * seconds / total:.0f} %"
            f" | {seconds * 1e6 / term.nodes:.2f} | {floor if term.floor_s else ' | '} |"
        )
    floor_us = sum(term.floor_s for term in terms) * 1e6
    nodes = sum(term.nodes for term in terms)
    print(
        f"| all, and what finds the rows | {nodes} | {total * 1e6:.1f} | | | {floor_us:.1f} |",
        end="",
    )
    print(f" {100 * floor_us / (total * 1e6):.0f} % |", flush=True)


def terms_of(device: VariantDevice, program: Program, rows: int, context: int) -> list[Term]:
    """The terms of a program with so many live rows."""
    floors: dict[str, float] = defaultdict(float)
    for _, done in cut(program):
        rotated = done[-1].kernel.name == ROTATION and len(done) > 1
        for launch in done:
            if launch.kernel.name in SELECTING:
                rows = 1  # of a prompt its last one goes on
            floors[term_of(done)] += floor_s(launch, rows, context, 2 if rotated else 4)
    return [Term(name, n, floors[name]) for name, n in device.nodes[program.name].items()]


def main() -> None:
    """Parses options and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lanes", default="1,8,32,128", help="default: %(default)s")
    parser.add_argument("--prompts", default="512,2048,8192", help="default: %(default)s")
    parser.add_argument("--context", type=int, default=192, help="default: %(default)s")
    parser.add_argument("--passes", type=int, default=9, help="default: %(default)s")
    options = parser.parse_args()
    needs_gpu()
    parts = Parts(options.folder)
    programs = {program.name: program for program in parts.manifest.programs}
    decode = [int(one) for one in options.lanes.split(",") if f"decode.b{one}" in programs]
    prompts = [int(one) for one in options.prompts.split(",") if f"prefill.p{one}" in programs]
    chosen = [f"decode.b{lanes}" for lanes in decode] + [f"prefill.p{n}" for n in prompts]
    device = VariantDevice(parts, chosen)
    runtime = ModelRuntime.from_parts(
        parts.contract, parts.message, parts.weights, target=parts.manifest.target,
        capacities=Capacities(), device=device, modules=parts.modules,
    )  # fmt: skip
    infos = {info.name: info for info in runtime.geometry.programs}
    rounds = Rounds(runtime, device)
    for lanes in decode:
        program = programs[f"decode.b{lanes}"]
        rounds.decode(infos[program.name], lanes, options.context)
        terms = terms_of(device, program, lanes, options.context)
        report(device, rounds, program, f"{lanes} lanes x {options.context}", terms, options.passes)
    for capacity in prompts:
        program = programs[f"prefill.p{capacity}"]
        tokens = min(capacity, runtime.geometry.max_context_tokens - 1)
        rounds.prompt(infos[program.name], tokens)
        terms = terms_of(device, program, tokens, tokens)
        report(device, rounds, program, f"a prompt of {tokens}", terms, options.passes)
    runtime.close()


if __name__ == "__main__":
    main()
