"""Requests that wait until the text of their output can be read, which stop strings need.

The bytes of the model's tokens are read when the first such request comes, on a thread of their
own: start-up doesn't wait for them, nor do other requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from helios.errors import ContractError, ExecutionError, HeliosError
from helios.worker.messages import Submit

if TYPE_CHECKING:
    from helios.frontend.token_bytes import TokenBytes

OpenTokenBytes = Callable[[], "TokenBytes"]


def no_token_bytes() -> TokenBytes:
    """For workers of models without text."""
    raise ContractError(
        "this model has no tokenizer", where="stop", remedy="Use stop_token_ids instead"
    )


class HeldRequests:
    """True while there are some, `in` asks by id. Not thread-safe: of the loop's thread."""

    def __init__(self, open_token_bytes: OpenTokenBytes) -> None:
        self._open = open_token_bytes
        self._opening: threading.Thread | None = None
        self._opened = threading.Event()
        self._token_bytes: TokenBytes | HeliosError | None = None
        self._held: list[Submit] = []

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, request_id: int) -> bool:
        return any(request.request_id == request_id for request in self._held)

    def hold(self, request: Submit) -> bool:
        """Takes a request that can't begin yet; False where it can."""
        if request.stops is None or not request.stops.strings:
            return False
        if self._opened.is_set() and not self._held:  # nobody overtakes: choices follow their first
            return False
        self._held.append(request)
        if self._opening is None:
            self._opening = threading.Thread(target=self._run, name="helios-tokens", daemon=True)
            self._opening.start()
        return True

    def release(self) -> list[Submit]:
        """Those that can begin now, in the order of their arrival; they are no longer held."""
        return self.clear() if self._held and self._opened.is_set() else []

    def clear(self) -> list[Submit]:
        """Lets go of all of them."""
        held, self._held = self._held, []
        return held

    def remove(self, request_id: int) -> bool:
        """Lets go of one; False where it isn't held."""
        left = [request for request in self._held if request.request_id != request_id]
        found = len(left) < len(self._held)
        self._held = left
        return found

    def wait(self, timeout_ms: int) -> None:
        """Waits at most so long until those that are held can begin."""
        self._opened.wait(timeout_ms / 1e3)

    def token_bytes(self) -> TokenBytes:
        """What was opened, for requests that aren't held. Raises the HeliosError that kept it from
        being so."""
        assert self._token_bytes is not None, "a request has begun that must be held"
        if isinstance(self._token_bytes, HeliosError):
            raise self._token_bytes.with_traceback(None)  # it would grow with each request
        return self._token_bytes

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
