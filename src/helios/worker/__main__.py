"""`python -m helios.worker`: the model worker process."""

import signal
import sys
import time

from helios import collector

BEGAN_NS = time.monotonic_ns()

# Left to the client, and from the first moment on: an interrupt from the terminal reaches the
# worker too, while it imports what `process` needs.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)

collector.rest()

from helios.worker.process import main  # noqa: E402

sys.exit(main(sys.argv[1:], BEGAN_NS))
