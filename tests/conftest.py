"""Loads the plugin that tells which tests prove which clauses, for every run."""

pytest_plugins = ["tests.clauses.plugin"]
