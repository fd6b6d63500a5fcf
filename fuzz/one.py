"""The process of one target: `python -m fuzz.one TARGET` with libFuzzer's own options and folders.

Started by `fuzz`, which sets the limits. Give it a file to run that input alone.
"""

from __future__ import annotations

import shlex
import sys
from random import Random

import atheris
from google.protobuf.message import Error

from fuzz.messages import mutate

with atheris.instrument_imports(include=["helios"]):
    from fuzz.targets import TARGETS


def main() -> None:
    """Doesn't return: libFuzzer ends the process."""
    name, *arguments = sys.argv[1:]
    target = TARGETS[name]

    def mutator(data: bytes, limit_nbytes: int, seed: int) -> bytes:
        """Alters a message's structure, or bytes where they are none."""
        random = Random(seed)
        if target.message is not None and random.random() < 0.9:
            message = target.message()
            try:
                message.ParseFromString(data)
                mutate(message, random)
                altered = message.SerializeToString()
            except (Error, ValueError):  # no message, or no longer one
                altered = b""
            if 0 < len(altered) <= limit_nbytes:
                return altered
        return bytes(atheris.Mutate(data, limit_nbytes))

    def give(data: bytes) -> None:
        target.accepts(data)

    # A merge has its inputs run in further processes, by this as a shell's command.
    command = f"{shlex.quote(sys.executable)} -m fuzz.one {name}"
    atheris.Setup([command, *arguments], give, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
