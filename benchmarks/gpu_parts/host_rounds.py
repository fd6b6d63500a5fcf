"""Measures a cuda device's host half over programs that compute nothing."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from gpu_parts.host_programs import SIZES, Parts, chain, faulting, hanging, load_parts
from helios.errors import ExecutionError
from helios.runtime.devices.cuda.device import CudaDevice

# Programs and nodes of a small model's core.
PROGRAMS, NODES = 20, 290
Results = dict[str, object]


def measure(folder: Path, weights_gib: float, rounds: int) -> Results:
    """All figures by name; a check that fails has WRONG in its value."""
    results: Results = {}
    began = time.perf_counter()
    weights = np.random.default_rng(0).integers(0, 255, 1 << 26, np.uint8)
    content = np.tile(weights, max(1, int(weights_gib * 16)))
    parts = load_parts(folder, content.nbytes)
    made = time.perf_counter()
    device = parts.open()
    opened = time.perf_counter()
    device.allocate(parts.plan, {"weights": content.data})
    allocated = time.perf_counter()
    sizes = [size for size in SIZES for _ in range(PROGRAMS // len(SIZES))]
    programs = [chain(parts, size, NODES) for size in sizes]
    short = [chain(parts, size, 1) for size in SIZES]
    nodes = sum(len(program.launches) + 2 for program in (*programs, *short))
    device.load([*programs, *short])
    loaded = time.perf_counter()
    results["making weights, s"] = round(made - began, 3)
    results["opening, ms"] = round(1e3 * (opened - made), 1)
    spent = device.load_ns()
    results["memory, ms"] = round(spent["memory"] / 1e6, 1)
    results["weights beside graphs, GB/s"] = round(content.nbytes / spent["weights_upload"], 2)
    results["loading graphs, ms"] = round(1e3 * (loaded - allocated), 1)
    results["loading, us a node and frame"] = round(1e6 * (loaded - allocated) / nodes / 2, 2)
    results["graphs, MiB"] = round(device.scratch_nbytes() / (1 << 20), 2)
    back = np.empty(1 << 26, np.uint8)
    device.read_rows(parts.index["weight"], 0, back)
    results["weights' first bytes"] = "equal" if np.array_equal(back, weights) else "WRONG"
    try:
        _rounds(parts, device, len(programs), rounds, results)
    finally:
        began = time.perf_counter()
        device.close()
        results["closing, ms"] = round(1e3 * (time.perf_counter() - began), 1)
    return results


def _rounds(
    parts: Parts, device: CudaDevice, first_short: int, rounds: int, results: Results
) -> None:
    sequence = 0
    free = device.available_memory().nbytes
    for position, size in enumerate(SIZES):
        program = first_short + position
        trips, submits, spans = [], [], []
        for _ in range(2000):
            sequence += 1
            began = time.perf_counter_ns()
            device.submit(program, sequence % 2, sequence)
            submitted = time.perf_counter_ns()
            while device.completed() < sequence:
                pass
            trips.append(time.perf_counter_ns() - began)
            submits.append(submitted - began)
            start, end = device.timing(sequence)
            spans.append(end - start)
        results[f"{size}: submit, us p50 p99"] = _percentiles(submits)
        results[f"{size}: round trip (spinning), us p50 p99"] = _percentiles(trips)
        results[f"{size}: on the device, us p50 p99"] = _percentiles(spans)
    trips = []
    for _ in range(1000):
        sequence += 1
        began = time.perf_counter_ns()
        device.submit(first_short, sequence % 2, sequence)
        device.wait(sequence, 1000)
        trips.append(time.perf_counter_ns() - began)
    results["small: round trip (waiting), us p50 p99"] = _percentiles(trips)
    sequence = _torn(parts, device, first_short, rounds, sequence, results)
    began = time.perf_counter_ns()
    for number in range(500):
        sequence += 1
        device.submit(0, sequence % 2, sequence)
        if number:
            device.wait(sequence - 1, 1000)
    device.wait(sequence, 1000)
    interval = (time.perf_counter_ns() - began) / 500 / 1e3
    results[f"{NODES} nodes, two in flight, us a round"] = round(interval, 1)
    spans = [end - start for start, end in map(device.timing, range(sequence - 99, sequence + 1))]
    results[f"{NODES} nodes: on the device, us p50 p99"] = _percentiles(spans)
    taken = free - device.available_memory().nbytes
    results["memory that rounds took"] = f"WRONG: {taken}" if taken > 0 else "none"
    numbers = device.read_buffer(parts.index["numbers"], 0)
    counted = 4 * 2000 + 1000 + rounds + 500 * NODES
    wrong = int((numbers != counted).sum())
    results["nodes that ran"] = f"WRONG: {numbers[0]}" if wrong else f"{counted}, each in its turn"


def _torn(
    parts: Parts,
    device: CudaDevice,
    first_short: int,
    rounds: int,
    sequence: int,
    results: Results,
) -> int:
    """Rounds of all sizes with two in flight; each record must repeat its input."""
    inputs = {size: [_words(device, parts, f"in.{size}", f) for f in (0, 1)] for size in SIZES}
    outputs = {size: [_words(device, parts, f"out.{size}", f) for f in (0, 1)] for size in SIZES}
    names = list(SIZES)
    torn, slow, pending = 0, 0, []
    began = time.perf_counter_ns()
    for number in range(rounds):
        sequence += 1
        size = names[number % len(names)]
        inputs[size][sequence % 2][:] = sequence
        device.submit(first_short + number % len(names), sequence % 2, sequence)
        pending.append((sequence, size))
        if len(pending) == 2 or number == rounds - 1:
            while pending and (len(pending) == 2 or number == rounds - 1):
                done, its = pending.pop(0)
                slow += not device.wait(done, 2000)
                torn += bool((outputs[its][done % 2] != done).any())
    spent = (time.perf_counter_ns() - began) / rounds / 1e3
    results[f"torn records of {rounds}"] = f"WRONG: {torn}" if torn or slow else torn
    results["all sizes, two in flight and checked, us a round"] = round(spent, 1)
    return sequence


def _words(device: CudaDevice, parts: Parts, name: str, frame: int) -> np.ndarray:
    return device.view(parts.index[name], frame).view(np.int32)


def _percentiles(values: list[int]) -> str:
    p50, p99 = np.percentile(values, (50, 99)) / 1e3
    return f"{p50:.1f} {p99:.1f}"


def fail(folder: Path, how: str) -> int:
    """Makes the GPU fail, and shows what comes of it."""
    parts = load_parts(folder)
    device = parts.open(round_limit_s=3.0)
    device.allocate(parts.plan, {})
    device.load([faulting(parts) if how == "fault" else hanging(parts)])
    began = time.perf_counter()
    device.submit(0, 1, 1)
    for attempt in range(2):
        try:
            ended = device.wait(1, 10_000)
            print(f"WRONG: no error, ended {ended}")
        except ExecutionError as error:
            print(f"{time.perf_counter() - began:.2f} s, call {attempt}: {error}")
    device.close()
    print(f"closed after {time.perf_counter() - began:.2f} s")
    return 0
