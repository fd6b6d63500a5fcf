"""llama.cpp's own benchmark programs, for benchmarks/versus.py: `llama_cpp_tools.py FOLDER
MODEL.gguf THREADS`, FOLDER being that of the programs.

Each measurement starts a program that loads the model anew; loading isn't counted.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def batched_rate(output: str) -> float:
    """Output tokens a second, of what `llama-batched-bench` printed: a table whose last row has it
    in the column `S_TG t/s`."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in output.splitlines()
        if line.strip().startswith("|")
    ]
    return float(rows[-1][rows[0].index("S_TG t/s")])


def perplexity(output: str) -> float:
    """What `llama-perplexity` printed at the end."""
    found = re.search(r"Final estimate: PPL = ([0-9.]+)", output)
    if found is None:
        raise ValueError("llama-perplexity printed no estimate")
    return float(found.group(1))


def main() -> None:
    """Answers; each request runs a program."""
    from line_protocol import answer, silence  # beside this script, when it is run as one

    answers = silence()
    folder, model, threads = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    def program(name: str, *options: str) -> str:
        command = [str(folder / name), "-m", model, "-t", threads, *options]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        return ended.stdout if name != "llama-perplexity" else ended.stdout + ended.stderr

    def prefill(tokens: int) -> dict[str, Any]:
        options = ["-p", str(tokens), "-n", "0", "-r", "1", "-o", "json"]
        return {"tokens_per_s": json.loads(program("llama-bench", *options))[0]["avg_ts"]}

    def decode(lanes: int, prompt_tokens: int, tokens: int) -> dict[str, Any]:
        context = lanes * (prompt_tokens + tokens)
        options = ["-tb", threads, "-npp", str(prompt_tokens), "-ntg", str(tokens)]
        options += ["-npl", str(lanes), "-c", str(context)]
        return {"tokens_per_s": batched_rate(program("llama-batched-bench", *options))}

    def text_scores(texts: list[str], width: int) -> dict[str, Any]:
        """Perplexity of each text: of the second half of each of its windows."""
        found = []
        for text in texts:
            with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                options = ["-tb", threads, "-c", str(width), "-b", str(width), "-f", file.name]
                found.append(math.log(perplexity(program("llama-perplexity", *options))))
        return {"nats_per_token": found}

    answer({"prefill": prefill, "decode": decode, "text_scores": text_scores}, answers)


if __name__ == "__main__":
    main()
