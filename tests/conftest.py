"""For every run: the plugin that tells which tests prove which clauses, and property settings."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

pytest_plugins = ["tests.clauses.plugin", "tests.own_folders"]

# Machines are shared and noisy, so an example's duration says nothing. In CI the examples are the
# same in every run; elsewhere they differ, which is how new ones are found.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
# Doesn't look for the smallest counterexample: for runs that only ask whether there is one.
settings.register_profile(
    "first-failure", deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
settings.load_profile("ci" if os.environ.get("CI") else "local")
