"""The `helios` command: how it starts, and how it ends.

A server is started without the library that reads command lines (`command_line`), since that takes
as long as loading a model; everything else is `cli_commands`', which knows all commands. Errors
are one line with exit status 2, interrupts end without a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from helios.errors import HeliosError
from helios.logs import log_to_stderr
from helios.wording import escaped


def main() -> None:
    """Runs the command; its exit status is 2 for errors and 130 for an interrupt."""
    log_to_stderr()
    try:
        if not served(sys.argv[1:]):
            from helios.cli_commands import app

            app()
    except HeliosError as error:
        # One line, and nothing that a terminal obeys: errors name what others wrote.
        print(f"helios: {escaped(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone; keep the interpreter from flushing into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def served(arguments: Sequence[str]) -> bool:
    """Serves, if that is what the arguments plainly ask for; False leaves them to `cli_commands`,
    which says what is wrong with them if something is."""
    if arguments[:1] != ["serve"]:
        return False
    from helios.cli_serve import serve
    from helios.command_line import read

    given = read(serve, arguments[1:])
    if given is None:
        return False
    serve(**given)
    return True


if __name__ == "__main__":
    main()
