"""llama.cpp beside us: answers timing requests on standard input, for benchmarks/throughput.py.

Runs in an environment of its own that has the `xllamacpp` package (llama.cpp's server, built as a
Python extension). One line of input, `PROMPT_TOKENS OUTPUT_TOKENS`, gives one line of JSON with
the rates that the server itself reports.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def main() -> None:
    """`llama_cpp.py MODEL.gguf THREADS`."""
    model, threads = sys.argv[1], int(sys.argv[2])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = 4096
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    print("ready", flush=True)
    for line in sys.stdin:
        prompt_tokens, output_tokens = map(int, line.split())
        answer = server.handle_completions(
            {
                "prompt": list(range(100, 100 + prompt_tokens)),
                "n_predict": output_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
        )
        timings = answer["timings"]
        rates = {"prefill": timings["prompt_per_second"], "decode": timings["predicted_per_second"]}
        print(json.dumps(rates), flush=True)


if __name__ == "__main__":
    main()
