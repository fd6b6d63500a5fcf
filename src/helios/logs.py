"""Sends what Helios's loggers say to standard error, for its own processes.

Only the command line and the worker process ask for it: a program that imports Helios decides
itself what becomes of its loggers.
"""

from __future__ import annotations

import logging

from helios.wording import escaped


class _OneLine(logging.Formatter):
    """Messages may name what others wrote, which a terminal mustn't obey."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))


def log_to_stderr() -> None:
    """Prints messages of the `helios` loggers, one a line; warnings and what takes long."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("helios: %(message)s"))
    logger = logging.getLogger("helios")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
