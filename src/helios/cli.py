"""The `helios` command: how it starts, and how it ends.

A server's model worker is started before anything else is done or imported, and plain command lines
of a server are read without the library for it (`command_line`): both take as long as loading a
model does. Everything else is `cli_commands`', which knows all commands. Errors are one line with
exit status 2, interrupts end without a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from helios.errors import HeliosError
from helios.standard_streams import open_closed_streams


def main() -> None:
    """Runs the command; its exit status is 2 for errors and 130 for an interrupt."""
    open_closed_streams()
    try:
        if not served(sys.argv[1:]):
            _log_to_stderr()
            from helios.cli_commands import app

            app()
    except HeliosError as error:
        from helios.wording import escaped

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
    """Serves, if that is what the arguments plainly ask for. False leaves them to `cli_commands`,
    which says what is wrong with them if something is; nothing runs then."""
    if arguments[:1] != ["serve"]:
        return False
    from helios import collector
    from helios.worker.launch import start

    # More HTTP processes come in by a door, which only costs a descriptor where there are none.
    door = any(word.startswith("--http-workers") for word in arguments)
    with start(door=door) as worker:
        collector.rest()
        _log_to_stderr()
        from helios.cli_serve import asked_server, serve
        from helios.command_line import read

        given = read(asked_server, arguments[1:])
        if given is None:
            return False
        serve(asked_server(**given), worker)
    return True


def _log_to_stderr() -> None:
    from helios.logs import log_to_stderr

    log_to_stderr()


if __name__ == "__main__":
    main()
