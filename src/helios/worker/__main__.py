"""`python -m helios.worker`: the model worker process."""

import sys

from helios.worker.process import main

sys.exit(main(sys.argv[1:]))
