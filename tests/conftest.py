"""For every run: the plugin that tells which tests prove which clauses, and a Hypothesis profile
that doesn't look for the smallest counterexample, for runs that only ask whether there is one."""

from hypothesis import Phase, settings

pytest_plugins = ["tests.clauses.plugin", "tests.own_folders"]

settings.register_profile("first-failure", phases=(Phase.explicit, Phase.reuse, Phase.generate))
