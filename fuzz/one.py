"""The process of one target: `python -m fuzz.one TARGET` with libFuzzer's own options and folders.

Started by `fuzz`, which sets the limits. Give it a file to run that input alone.
"""

from __future__ import annotations

import shlex
import sys
from random import Random

import atheris
from google.protobuf.message import Error

from fuzz.json_values import altered
from fuzz.messages import mutate

# Helios's own code, and the libraries in Python that read hostile text for it.
with atheris.instrument_imports(include=["helios", "jinja2", "httpcore", "h11"]):
    from fuzz.targets import TARGETS, Target


def main() -> None:
    """Doesn't return: libFuzzer ends the process."""
    name, *arguments = sys.argv[1:]
    target = TARGETS[name]

    def mutator(data: bytes, limit_nbytes: int, seed: int) -> bytes:
        """Alters an input's structure, or bytes where it has none."""
        random = Random(seed)
        changed = _altered(target, data, random) if random.random() < 0.9 else b""
        if 0 < len(changed) <= limit_nbytes:
            return changed
        return bytes(atheris.Mutate(data, limit_nbytes))

    def give(data: bytes) -> None:
        target.accepts(data)

    # A merge has its inputs run in further processes, by this as a shell's command.
    command = f"{shlex.quote(sys.executable)} -m fuzz.one {name}"
    atheris.Setup([command, *arguments], give, custom_mutator=mutator)
    atheris.Fuzz()


def _altered(target: Target, data: bytes, random: Random) -> bytes:
    """The input with another structure; nothing where it has none, or has none any more."""
    try:
        if target.message is not None:
            message = target.message()
            message.ParseFromString(data)
            mutate(message, random)
            return message.SerializeToString()
        return altered(data, random) if target.json else b""
    except (Error, ValueError):
        return b""


if __name__ == "__main__":
    main()
