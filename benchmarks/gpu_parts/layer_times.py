"""Times the ways of doing a layer: all layers of a model in one graph, on a GPU, without Triton."""

from __future__ import annotations

import ctypes
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from cuda.bindings import driver

from gpu_parts.geometries import GEOMETRIES, Geometry
from gpu_parts.launching import Described, Kernel, checked

PAGE_TOKENS = 64
CONTEXT_TOKENS = 192
LANES = 8
MOST_LANES = 128
DEVICE = "cuda"
LAYERS = {"135M": 30, "0.6B": 28, "8B": 32}
SLOTS = 128


class Memory:
    """What the launches of a model touch; weights and cache planes are each layer's own."""

    def __init__(self, geometry: Geometry, rows: int) -> None:
        g = self.geometry = geometry
        torch.manual_seed(rows)
        self.layers = LAYERS[g.name]
        decode = rows <= MOST_LANES
        self.context = CONTEXT_TOKENS if decode else rows
        pages = max(32, -(-self.context // PAGE_TOKENS))
        slots = rows if decode else 1
        mixed = g.q_heads * g.head_dim
        qkv = mixed + 2 * g.kv_heads * g.head_dim
        f32, bf16 = {"device": DEVICE}, {"device": DEVICE, "dtype": torch.bfloat16}
        i32 = {"device": DEVICE, "dtype": torch.int32}
        half = {"device": DEVICE, "dtype": torch.float16}

        def weight(outputs: int, width: int) -> torch.Tensor:
            return torch.randn(outputs, width, **bf16) * width**-0.5

        used = slots * -(-self.context // PAGE_TOKENS) + 1
        order = torch.randperm(used - 1, device=DEVICE).to(torch.int32)
        table = torch.zeros(slots, pages, **i32)
        table[:, : (used - 1) // slots] = order.view(slots, -1)
        positions = torch.full((rows,), self.context - 1, **i32)
        if not decode:
            positions = torch.arange(rows, **i32)
        self.shared: dict[str, torch.Tensor] = {
            "rows": torch.tensor([rows], **i32),
            "x": torch.randn(rows, g.hidden, **f32),
            "normed": torch.empty(rows, g.hidden, **bf16),
            "normed2": torch.empty(rows, g.hidden, **bf16),
            "squares": torch.empty(rows, g.hidden // 16, **f32),
            "squares2": torch.empty(rows, g.hidden // 16, **f32),
            "qkv": torch.empty(rows, qkv, **f32),
            "queries": torch.empty(rows, mixed, **half),
            "attended": torch.empty(rows, mixed, **bf16),
            "gated": torch.empty(rows, g.inner, **bf16),
            "positions": positions,
            "slot": torch.arange(rows, **i32) if decode else torch.zeros(rows, **i32),
            "page_table": table,
            "inverse_frequency": 10000.0
            ** -(torch.arange(g.head_dim // 2, **f32) * 2 / g.head_dim),
            "lanes": torch.tensor([1], **i32),
            "query_length": torch.tensor([rows, *[0] * (LANES - 1)], **i32),
        }
        self.own: list[dict[str, torch.Tensor]] = [
            {
                "norm": torch.ones(g.hidden, **f32),
                "norm2": torch.ones(g.hidden, **f32),
                "q_norm": torch.ones(g.head_dim, **f32),
                "k_norm": torch.ones(g.head_dim, **f32),
                "w_qkv": weight(qkv, g.hidden),
                "w_output": weight(g.hidden, mixed),
                "w_gate_up": weight(2 * g.inner, g.hidden),
                "w_down": weight(g.hidden, g.inner),
                "k_plane": torch.randn(used, g.kv_heads, PAGE_TOKENS, g.head_dim, **half),
                "v_plane": torch.randn(used, g.kv_heads, PAGE_TOKENS, g.head_dim, **half),
            }
            for _ in range(self.layers)
        ]
        self.counters = torch.zeros(1 << 16, **i32)
        self._scratch: dict[int, torch.Tensor] = {}
        self.before = self.shared["x"].clone()

    def tensor(self, name: str, layer: int) -> torch.Tensor:
        """The memory of an operand in a layer."""
        return self.own[layer][name] if name in self.own[layer] else self.shared[name]

    def argument(self, described: list[Any], layer: int) -> Any:
        """What a kernel is given."""
        kind, *rest = described
        if kind == "at":
            return self.tensor(rest[0], layer) if rest[0] else 0
        if kind == "map":
            return Described(self.tensor(rest[0], layer).view(-1, rest[1]))
        if kind == "rows":
            return self.tensor(rest[0], layer).nbytes // rest[1]
        if kind == "counters":
            return self.counters
        if kind == "scratch":
            if rest[0] not in self._scratch:
                self._scratch[rest[0]] = torch.empty(rest[0], device=DEVICE, dtype=torch.uint8)
            return self._scratch[rest[0]]
        return rest[0]


class Graph:
    """The launches of all layers, one after the other, with programmatic edges between them."""

    def __init__(self, memory: Memory, kernels: dict[str, Kernel], plan: dict[str, Any]) -> None:
        self._kept: list[Any] = []
        graph = checked(driver.cuGraphCreate(0))
        edge = driver.CUgraphEdgeData()
        edge.type = edge.from_port = 1  # programmatic: once all CTAs have let go
        node = driver.CUgraphNodeParams()
        node.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        before: list[Any] = []
        for layer in range(memory.layers):
            for launch in plan["launches"]:
                arguments = [memory.argument(a, layer) for a in launch["arguments"]]
                self._describe(node.kernel, kernels[launch["kernel"]], launch["grid"], arguments)
                edges = [edge] if before else None
                before = [
                    checked(driver.cuGraphAddNode(graph, before or None, edges, len(before), node))
                ]
        self._exec = checked(driver.cuGraphInstantiate(graph, 0))
        checked(driver.cuGraphDestroy(graph))

    def _describe(self, node: Any, kernel: Kernel, grid: list[int], arguments: list[Any]) -> None:
        addresses, kept = kernel.packed(arguments)
        self._kept.append(kept)
        node.func = kernel.function
        node.gridDimX, node.gridDimY, node.gridDimZ = grid
        node.blockDimX, node.blockDimY, node.blockDimZ = kernel.threads, 1, 1
        node.sharedMemBytes = kernel.shared
        node.kernelParams = ctypes.addressof(addresses)

    def launch(self) -> None:
        """Queues the graph on PyTorch's stream."""
        stream = torch.cuda.current_stream().cuda_stream
        checked(driver.cuGraphLaunch(self._exec, stream))

    def close(self) -> None:
        """Frees what the driver keeps of it."""
        checked(driver.cuGraphExecDestroy(self._exec))


def measure(
    folders: list[Path], models: list[str], rows: list[int], seconds: float, out: Path | None
) -> int:
    """Times every plan of the first folder and the first ones of the others, prints tables and
    writes all figures; 1 where bits differ."""
    began = time.monotonic()
    kernels: dict[str, tuple[Path, dict[str, Any]]] = {}
    every: list[dict[str, Any]] = []
    for folder in folders:
        content = json.loads((folder / "plans.json").read_text())
        kernels |= {f"{folder}/{n}": (folder, k) for n, k in content["kernels"].items()}
        every += _plans(content["plans"], folder, others=folder != folders[0])
    loaded: dict[str, Kernel] = {}
    results: list[dict[str, Any]] = []
    differing = 0
    for geometry in GEOMETRIES:
        for count in rows:
            plans = [p for p in every if (p["model"], p["rows"]) == (geometry.name, count)]
            if geometry.name not in models or not plans:
                continue
            if time.monotonic() - began > seconds:
                print(f"{geometry.name} {count}: left out, {seconds:.0f} s are over")
                continue
            memory = Memory(geometry, count)
            for plan in plans:
                for launch in plan["launches"]:
                    name = launch["kernel"]
                    if name not in loaded:
                        loaded[name] = Kernel(*kernels[name])
            found = _time_ways(memory, loaded, plans)
            differing += sum(not entry["same_bits"] for entry in found)
            results += found
            _print_table(geometry.name, count, memory.layers, found)
            del memory
            torch.cuda.empty_cache()
    if out is not None:
        out.write_text(json.dumps(results, indent=1))
    print(f"{differing} ways with other bits, {time.monotonic() - began:.0f} s")
    return 1 if differing else 0


def _plans(plans: list[dict[str, Any]], folder: Path, *, others: bool) -> list[dict[str, Any]]:
    """A folder's plans with kernels of its own; of `others` what its sources choose."""
    for plan in plans:
        for launch in plan["launches"]:
            launch["kernel"] = f"{folder}/{launch['kernel']}"
        if others:
            plan["way"] = f"{plan['way']} in {folder.name}"
    return [p for p in plans if not others or p["way"].startswith("as chosen")]


def _time_ways(
    memory: Memory, kernels: dict[str, Kernel], plans: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    x = memory.shared["x"]
    graphs = [Graph(memory, kernels, plan) for plan in plans]
    expected: dict[Any, torch.Tensor] = {}
    found = []
    for plan, graph in zip(plans, graphs, strict=True):
        x.copy_(memory.before)
        graph.launch()
        torch.cuda.synchronize()
        bits = x.view(torch.int32).clone()
        same = torch.equal(expected.setdefault(plan["parts"], bits), bits)
        finite = bool(torch.isfinite(x).all())
        found.append(
            {key: plan[key] for key in ("model", "rows", "way", "parts")}
            | {"launches": len(plan["launches"]), "same_bits": same and finite, "us": []}
        )
    repeats = 20 if memory.shared["rows"].item() <= MOST_LANES else 3
    for _ in range(5):
        for graph, entry in zip(graphs, found, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.launch()
            begin.record()
            for _ in range(repeats):
                graph.launch()
            end.record()
            torch.cuda.synchronize()
            entry["us"].append(begin.elapsed_time(end) * 1000 / repeats)
    for graph in graphs:
        graph.close()
    return found


def _print_table(model: str, rows: int, layers: int, found: list[dict[str, Any]]) -> None:
    base = median(found[0]["us"])
    print(f"\n{model}, {rows} rows: us for {layers} layers, us a layer, against the first")
    for entry in sorted(found, key=lambda e: median(e["us"])):
        total = median(entry["us"])
        print(
            f"  {total:9.1f} {total / layers:8.2f} {100 * (total / base - 1):+6.1f} %"
            f"  {entry['launches']} launches  {entry['way']}"
            f"{'' if entry['same_bits'] else '  OTHER BITS'}"
        )
