"""Grammars on their way to matchers: compiled on a few threads of their own, so that neither the
loop nor other requests wait.

The HTTP process has compiled a grammar before it sends it, so one that can't be compiled here is
its request's failure. The vocabulary as grammars see it is made with the first one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from helios.dataclass import dataclass
from helios.errors import ContractError, ExecutionError, HeliosError
from helios.worker.matcher_faults import first_line

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

OpenVocabulary = Callable[[], "LLTokenizer"]

THREADS: Final = 2
CACHED: Final = 32  # compiled grammars that are kept; each takes up to some megabytes
_WHERE: Final = "grammar"


def no_vocabulary() -> LLTokenizer:
    """For workers of models without text."""
    raise ContractError(
        "this model has no tokenizer", where=_WHERE, remedy="Send requests without a grammar"
    )


@dataclass(slots=True)
class GrammarCounters:
    """What grammars have cost since start. `compiled` counts those that were, `cached` requests
    that found theirs; `compile_ns` is the threads' time, `mask_ns` the loop's, in which the device
    waits, for so many `masks`."""

    compiled: int = 0
    cached: int = 0
    compile_ns: int = 0
    masks: int = 0
    mask_ns: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A matcher at a grammar's beginning; what may come first, as `mask`, and what must, as
    `forced`."""

    matcher: LLMatcher
    mask: bytes
    forced: tuple[int, ...]


class Grammars:
    """Compiles on threads that begin with the first grammar. `counters` are the threads' own but
    for what the loop adds: two never write one of them."""

    def __init__(self, open_vocabulary: OpenVocabulary) -> None:
        self._open = open_vocabulary
        self._threads: ThreadPoolExecutor | None = None
        self._compiling = threading.Lock()  # of what follows
        self._vocabulary: LLTokenizer | HeliosError | None = None
        self._cached: OrderedDict[str, Prepared] = OrderedDict()
        self.counters = GrammarCounters()

    def prepare(self, text: str) -> Future[Prepared]:
        """A matcher of the grammar, at its beginning, for one request. Its exception is the
        HeliosError that kept it from being made."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="helios-grammar")
        return self._threads.submit(self._prepare, text)

    def close(self) -> None:
        """Begins no more; what is being compiled comes to its end by itself."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    # ------------------------------------------------------------ the threads

    def _prepare(self, text: str) -> Prepared:
        vocabulary = self._opened()
        with self._compiling:
            found = self._cached.get(text)
            if found is not None:
                self._cached.move_to_end(text)
                self.counters.cached += 1
        if found is None:
            began = time.monotonic_ns()
            found = _compiled(vocabulary, text)
            with self._compiling:
                self.counters.compiled += 1
                self.counters.compile_ns += time.monotonic_ns() - began
                self._cached[text] = found
                while len(self._cached) > CACHED:
                    self._cached.popitem(last=False)
        # One in the cache is never advanced.
        return Prepared(found.matcher.deep_copy(), found.mask, found.forced)

    def _opened(self) -> LLTokenizer:
        with self._compiling:
            if self._vocabulary is None:
                try:
                    self._vocabulary = self._open()
                except HeliosError as error:
                    self._vocabulary = error
                except Exception as error:
                    self._vocabulary = ExecutionError(
                        f"the vocabulary can't be made ({error!r})", where=_WHERE
                    )
            if isinstance(self._vocabulary, HeliosError):
                raise self._vocabulary.with_traceback(None)
            return self._vocabulary


def _compiled(vocabulary: LLTokenizer, text: str) -> Prepared:
    # Imported on use: most workers never need it.
    from llguidance import LLMatcher

    from helios.frontend.grammar.compiler import parser_limits

    matcher = LLMatcher(vocabulary, text, log_level=0, limits=parser_limits())
    forced = () if matcher.is_error() else tuple(matcher.compute_ff_tokens())
    mask = b"" if matcher.is_error() else matcher.compute_bitmask()
    if matcher.is_error():
        raise ExecutionError(
            f"the grammar can't be compiled: {first_line(matcher.get_error())}",
            where=_WHERE,
            remedy="Send a smaller one",
        )
    return Prepared(matcher, mask, forced)
