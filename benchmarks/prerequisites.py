"""What a command here needs of the machine: said in one line where it isn't there, with how it is
had, and exit status 2. Commands ask before they do anything else.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

_SOURCES = str(Path(__file__).parents[1] / "src")


def needs_modules(get: str, *names: str) -> None:
    """Modules that `get`, a command line, brings."""
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        _end(f"needs the Python package{'s' * (len(missing) > 1)} {', '.join(missing)}: {get}")


def needs_extra(extra: str, *names: str) -> None:
    """Modules that an extra of this checkout brings."""
    needs_modules(f"pip install -e '.[{extra}]'", *names)


def needs_program(name: str, get: str) -> None:
    """A program that `get` brings."""
    if shutil.which(name) is None:
        _end(f"needs {name}: {get}")


def needs_gpu(target: str = "cuda") -> None:
    """A driver and a GPU that it sees, where the target is one of cuda's."""
    if not target.startswith("cuda"):
        return
    # In a process of its own: a driver that is open here would make a server's start faster.
    done = subprocess.run(
        [sys.executable, __file__], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        _end(f"needs a GPU. {done.stdout.strip() or 'Looking for one failed'}")


def _look_for_gpu() -> int:
    if not _is_installed("helios"):  # beside a bundle's benchmarks it needn't be installed
        sys.path.append(_SOURCES)
    from helios.errors import HeliosError
    from helios.runtime.devices.cuda.driver import bindings

    try:
        bindings()
    except HeliosError as error:
        print(error)
        return 1
    return 0


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # of what it is part of
        return False


def _end(why: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name} {why}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(_look_for_gpu())
