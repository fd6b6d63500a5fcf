"""Who takes part: each engine in each storage form, how its driver is started, and how its server.

A contestant's `files` makes or finds its model, which may raise Unavailable.
"""

from __future__ import annotations

import compileall
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from .environments import interpreter, llama_cpp_tools
from .files import NAMESPACE, Files

OURS: Final = "Helios"
PEERS: Final = Path(__file__).parents[1] / "peers"
_SOURCES: Final = Path(__file__).parents[2] / "src"


class Weights(StrEnum):
    """What a contestant's weights are, as far as rows tell them apart."""

    BF16 = "bf16"
    OTHER = "other"


@dataclass(frozen=True)
class Command:
    """How a process is started."""

    arguments: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """How a contestant's server is started on a port, and what tells that it is ready.

    `slots` is how many requests it takes at once; `kept` says that it starts too slowly to be
    started again for each pass."""

    command: Callable[[int], Command]
    ready_path: str = "/health"
    slots: int = 32
    kept: bool = False


@dataclass(frozen=True)
class Contestant:
    """One engine in one storage form. `stored` is the file or folder that its weights are in, for
    those whose perplexity is measured; `quick` says that a quick run has it."""

    peer: str
    form: str
    weights: Weights
    driver: Callable[[], Command] | None = None
    servers: Callable[[], list[Server]] | None = None
    stored: Callable[[], Path] | None = None
    quick: bool = True

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.peer} {self.form}".strip()


@dataclass(frozen=True)
class OurCore:
    """A core that the user names in place of the one that the benchmark prepares."""

    folder: Path
    namespace: str


def contestants(files: Files, threads: int, ours: OurCore | None) -> list[Contestant]:
    """Everyone, ours first."""
    count = str(threads)

    def script(peer: str, name: str, *arguments: str) -> Command:
        return Command([str(interpreter(files.cache, peer)), str(PEERS / name), *arguments])

    def helios(form: str) -> Contestant:
        def core() -> OurCore:
            if ours is not None and form == "as-stored":
                return ours
            return OurCore(files.core(form), NAMESPACE)

        def driver() -> Command:
            found = core()
            arguments = [str(PEERS / "helios_lanes.py"), str(found.folder), found.namespace, count]
            return Command([sys.executable, *arguments], {"PYTHONPATH": str(_SOURCES)})

        def servers() -> list[Server]:
            found = core()
            # As an installed package is: start-up isn't to be that of the compiler.
            compileall.compile_dir(_SOURCES / "helios", quiet=2)
            # One context, the least there can be: what ended is kept as long as there is room.
            options = ["--allow-unknown-publisher", "--no-access-log", "--threads", count]
            options += ["--cache-memory", "180MiB"]
            command = [sys.executable, "-m", "helios.cli", "serve", str(found.folder)]
            command += ["--accept", found.namespace, *options]
            environment = {"PYTHONPATH": str(_SOURCES)}
            return [
                Server(lambda port: Command([*command, "--port", str(port)], environment), "/ready")
            ]

        weights = Weights.BF16 if form == "bf16" else Weights.OTHER
        served = servers if form == "as-stored" else None
        quick = form in ("as-stored", "bf16")
        return Contestant(OURS, form, weights, driver, served, lambda: core().folder, quick)

    def llama_cpp(form: str, quick: bool) -> Contestant:
        tools = llama_cpp_tools(files.cache)

        def driver() -> Command:
            model = str(files.llama_cpp(form))
            return script("llama.cpp", "llama_cpp_tools.py", str(tools), model, count)

        def servers() -> list[Server]:
            model = str(files.llama_cpp(form))
            command = [str(tools / "llama-server"), "-m", model, "-t", count, "-tb", count]
            command += ["-c", "16384", "-ub", "512"]

            def one(slots: int) -> Server:
                return Server(
                    lambda port: Command([*command, "-np", str(slots), "--port", str(port)]),
                    slots=slots,
                )

            return [one(8), one(32)]

        weights = Weights.BF16 if form == "bf16" else Weights.OTHER
        stored = partial(files.llama_cpp, form)
        return Contestant("llama.cpp", form, weights, driver, servers, stored, quick)

    def openvino(form: str) -> Contestant:
        def driver() -> Command:
            model = str(files.openvino(form))
            return script("OpenVINO GenAI", "openvino_genai_lanes.py", model, count)

        weights = Weights.BF16 if form == "fp16" else Weights.OTHER
        return Contestant("OpenVINO GenAI", form, weights, driver)

    def onnxruntime(form: str, quick: bool) -> Contestant:
        def driver() -> Command:
            model = str(files.onnxruntime(form))
            return script("onnxruntime-genai", "onnxruntime_genai_lanes.py", model)

        return Contestant("onnxruntime-genai", form, Weights.OTHER, driver, quick=quick)

    def transformers() -> Command:
        model = str(files.checkpoint("bf16"))
        return script("transformers", "transformers_lanes.py", model, count)

    return [
        *(helios(form) for form in ("as-stored", "bf16", "int8", "int4")),
        *(llama_cpp(form, form in ("q4_0", "bf16")) for form in ("q4_0", "q4_1", "q8_0", "bf16")),
        *(openvino(form) for form in ("int4", "int8", "fp16")),
        *(onnxruntime(form, form == "int4") for form in ("int4", "fp32")),
        Contestant(
            "vLLM", "bf16", Weights.BF16, servers=lambda: [_vllm(files, threads)], quick=False
        ),
        Contestant("transformers", "bf16", Weights.BF16, transformers, quick=False),
    ]


def _vllm(files: Files, threads: int) -> Server:
    """vLLM's CPU build: two memory libraries are preloaded where they are, as its manual asks."""
    python = interpreter(files.cache, "vLLM")
    libraries = [
        *Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"),
        *python.parents[1].glob("lib/libiomp5.so"),
    ]
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(files.cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(files.cache / "vllm/inductor"),
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": ":".join(map(str, libraries)),
    }
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--dtype", "bfloat16"]
    command += ["--model", str(files.checkpoint("bf16")), "--served-model-name", "model"]
    command += ["--max-model-len", "2048", "--no-enable-prefix-caching"]
    return Server(lambda port: Command([*command, "--port", str(port)], environment), kept=True)
