"""Settings that every test shares."""

from __future__ import annotations

import os

from hypothesis import settings

# Machines are shared and noisy, so an example's duration says nothing. In CI the examples are the
# same in every run; elsewhere they differ, which is how new ones are found.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
