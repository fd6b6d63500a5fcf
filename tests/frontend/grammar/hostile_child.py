"""Compiles hostile grammars, each in a process of its own with limits on time and memory.

    PYTHONPATH=src:. python -m tests.frontend.grammar.hostile_child [--core CORE --accept NAMESPACE]

Prints a line of JSON for each case, or with `--core`, whose vocabulary it then has, a table. A case
is compiled on a thread, as the server does it, and what was accepted is followed for some tokens;
`cpu_s` is the processor time that compiling took, `mask_ms` the longest of the masks, `mib` the
process's largest size.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llguidance import LLMatcher

from helios.errors import RequestError
from helios.frontend.grammar.compiler import GrammarCompiler, parser_limits
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.tools import NO_TOOLS
from tests.frontend.grammar.hostile_cases import CASES
from tests.frontend.response.syntaxes import EVERY
from tests.frontend.wide_vocabulary import wide_tokenizer

CPU_LIMIT_S: Final = 4
MEMORY_LIMIT: Final = 1 << 30
STEPS: Final = 40

Result = dict[str, Any]


def compiler_of_words() -> GrammarCompiler:
    """A compiler with a vocabulary of many words, which is what makes masks dear."""
    tokenizer = wide_tokenizer()
    return GrammarCompiler(EVERY[0][0].contract, tokenizer, MarkerSigns(), tokenizer.id_extent)


def compiler_of_core(folder: str, accept: str) -> GrammarCompiler:
    """A core's own compiler."""
    from helios.core import open_core
    from helios.frontend.bootstrap import Bootstrap

    core = open_core(folder, accept=accept, allow_unknown_publisher=True)
    frontend = Bootstrap.load(core)
    contract = core.contract.model
    return GrammarCompiler(
        contract.frontend,
        frontend.tokenizer,
        frontend.preparer.reading.signs,
        contract.vocabulary.sampled_tokens,
    )


def _run(compiler: GrammarCompiler, name: str, result: Result) -> None:
    began = time.process_time()
    try:
        structure = CASES[name].make()
        grammar = compiler.compile(Constraint(structure, NO_TOOLS), None)
    except RequestError as error:
        result.update(ends="refused", where=error.where, text=str(error))
    else:
        result.update(ends="grammar")
    result["cpu_s"] = time.process_time() - began
    if result["ends"] == "grammar":
        _follow(compiler, grammar, result)


def _follow(compiler: GrammarCompiler, grammar: str, result: Result) -> None:
    vocabulary = compiler.vocabulary
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=parser_limits())
    ends, choose = set(vocabulary.eos_tokens), random.Random(1)
    longest = 0.0
    for _ in range(STEPS):
        began = time.process_time()
        mask = matcher.compute_bitmask()
        longest = max(longest, time.process_time() - began)
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
        allowed = [int(token) for token in np.flatnonzero(bits) if int(token) not in ends]
        if matcher.is_error() or not allowed or not matcher.consume_token(choose.choice(allowed)):
            break
    result["mask_ms"] = longest * 1e3


def run_apart(compiler: GrammarCompiler, name: str) -> Result:
    """A case's result; `ends` says "died" where it passed a limit or took the process with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + 1 + CPU_LIMIT_S
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        result: Result = {"name": name}
        thread = threading.Thread(target=_run, args=(compiler, name, result))
        thread.start()
        thread.join()
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        written = pipe.read()
    _, status, usage = os.wait4(child, 0)
    found: Result = json.loads(written) if written else {"name": name, "status": status}
    return {"ends": "died", **found, "mib": usage.ru_maxrss >> 10}


def main(report: Callable[[str], object] = print) -> None:
    """Runs every case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--core")
    parser.add_argument("--accept", default="")
    chosen = parser.parse_args()
    if chosen.core is None:
        compiler = compiler_of_words()
        _ = compiler.vocabulary
        for name in CASES:
            report(json.dumps(run_apart(compiler, name)))
        return
    compiler = compiler_of_core(chosen.core, chosen.accept)
    _ = compiler.vocabulary
    results = [run_apart(compiler, name) for name in CASES]
    for one in sorted(results, key=lambda one: -one.get("cpu_s", 99)):
        times = f"{one.get('cpu_s', 0):7.3f} s {one.get('mask_ms', 0):7.1f} ms {one['mib']:5} MiB"
        report(f"{times}  {one['ends']:8} {one['name']!r:44} {one.get('text', '')[:90]}")


if __name__ == "__main__":
    sys.exit(main())
