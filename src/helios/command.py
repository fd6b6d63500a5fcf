"""The `helios` script: the command line, or what to install where its libraries are missing.

A runtime-core installation has the engine without HTTP and terminal libraries; the script is there
all the same and then says so.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command. Exits with 2 where a library of the `server` extra is missing."""
    try:
        from helios.cli import main as run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "helios":
            raise
        print(
            f"helios: the command line needs {error.name}."
            " Install it with: pip install 'helios-serve[server]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
