"""Requests that wait for what they need beside the model: the text of their output, which stop
strings are looked for in, and their grammar's matcher.

The bytes of the model's tokens are read when the first request with stop strings comes, on a thread
of their own; grammars are compiled on others (`grammars`). Start-up doesn't wait for them, nor do
other requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from helios.errors import ContractError, ExecutionError, HeliosError
from helios.worker.messages import Submit

if TYPE_CHECKING:
    from helios.frontend.token_bytes import TokenBytes
    from helios.worker.grammars import Grammars, Prepared

OpenTokenBytes = Callable[[], "TokenBytes"]


def no_token_bytes() -> TokenBytes:
    """For workers of models without text."""
    raise ContractError(
        "this model has no tokenizer", where="stop", remedy="Use stop_token_ids instead"
    )


class HeldRequests:
    """True while there are some, `in` asks by id. Not thread-safe: of the loop's thread."""

    def __init__(self, open_token_bytes: OpenTokenBytes, grammars: Grammars) -> None:
        self._open = open_token_bytes
        self._grammars = grammars
        self._opening: threading.Thread | None = None
        self._opened = threading.Event()
        self._token_bytes: TokenBytes | HeliosError | None = None
        # In the order of their arrival.
        self._held: dict[int, Submit] = {}
        # Of requests with a grammar, until it is taken.
        self._prepared: dict[int, Future[Prepared]] = {}
        # Set when something that is waited for may be there.
        self._news = threading.Event()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._held

    def hold(self, request: Submit) -> bool:
        """Takes a request that can't begin yet; False where it can. A sibling doesn't overtake its
        leader."""
        request_id = request.request_id
        if request.grammar and request_id not in self._prepared:
            prepared = self._prepared[request_id] = self._grammars.prepare(request.grammar)
            prepared.add_done_callback(lambda _: self._news.set())
        if _has_strings(request) and self._opening is None:
            self._opening = threading.Thread(target=self._run, name="helios-tokens", daemon=True)
            self._opening.start()
        if self._can_begin(request):
            return False
        self._held[request_id] = request
        return True

    def _can_begin(self, request: Submit) -> bool:
        prepared = self._prepared.get(request.request_id)
        return (
            request.sibling_of not in self._held
            and (prepared is None or prepared.done())
            and (self._opened.is_set() or not _has_strings(request))
        )

    def release(self) -> list[Submit]:
        """Those that can begin now, in the order of their arrival; they are no longer held."""
        released: list[Submit] = []
        if self._held:
            self._news.clear()
            for request in list(self._held.values()):
                if self._can_begin(request):
                    del self._held[request.request_id]
                    released.append(request)
        return released

    def clear(self) -> list[Submit]:
        """Lets go of all of them."""
        held = list(self._held.values())
        for request in held:
            self.remove(request.request_id)
        return held

    def remove(self, request_id: int) -> bool:
        """Lets go of one; False where it isn't held."""
        prepared = self._prepared.pop(request_id, None)
        if prepared is not None:
            prepared.cancel()
        return self._held.pop(request_id, None) is not None

    def wait(self, timeout_ms: int) -> None:
        """Waits at most so long until some that are held can begin."""
        self._news.wait(timeout_ms / 1e3)

    def token_bytes(self) -> TokenBytes:
        """What was opened, for requests that aren't held. Raises the HeliosError that kept it from
        being so."""
        assert self._token_bytes is not None, "a request has begun that must be held"
        if isinstance(self._token_bytes, HeliosError):
            raise self._token_bytes.with_traceback(None)  # it would grow with each request
        return self._token_bytes

    def prepared(self, request_id: int) -> Prepared | None:
        """The matcher of a request that isn't held, for it alone; None where it has no grammar.
        Raises the HeliosError that kept it from being made."""
        prepared = self._prepared.pop(request_id, None)
        return None if prepared is None else prepared.result()

    def _run(self) -> None:
        """The thread."""
        try:
            self._token_bytes = self._open()
        except HeliosError as error:
            self._token_bytes = error
        except Exception as error:
            self._token_bytes = ExecutionError(
                f"the tokenizer can't be opened ({error!r})", where="stop"
            )
        finally:
            self._opened.set()
            self._news.set()


def _has_strings(request: Submit) -> bool:
    return request.stops is not None and bool(request.stops.strings)
