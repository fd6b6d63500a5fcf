"""The error family. Each says what is wrong, where, and what to do about it.

One class a cause; callers tell them apart by class, never by text.
"""

from __future__ import annotations


class HeliosError(Exception):
    """Base of every error that Helios raises on purpose.

    `where` names the field, file or program; `remedy` says what the reader can do.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}. {self.remedy}" if self.remedy else text


class CoreError(HeliosError):
    """A core's files are missing, damaged, unsigned or not accepted."""


class ContractError(HeliosError):
    """A contract or execution manifest is invalid or contradicts the other."""


class AdmissionError(HeliosError):
    """The scheduler can't take a request."""


class ExecutionError(HeliosError):
    """A device or a program failed, or a completion can't be true."""


class RequestError(HeliosError):
    """A client's request is invalid; `where` is the request field."""


def family_name(error: BaseException) -> str:
    """The class of this family that an error is of, by name; its own class's where it is of none.
    What another process is told, which knows these alone."""
    for kind in type(error).__mro__:
        if kind.__module__ == __name__:
            return kind.__name__
    return type(error).__name__
