"""What the server is doing: loading, serving, draining or broken, and what it serves.

One `Lifecycle` a process. `server` moves it on, routes ask it; what a phase means to a client is
said here once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, Literal, Protocol

from helios.dataclass import dataclass
from helios.errors import HeliosError
from helios.frontend.bootstrap import Frontend
from helios.server.admission import Admission
from helios.server.failures import ApiError
from helios.server.liveness import DeviceWatch
from helios.server.state_answers import Readiness
from helios.worker.messages import (
    Statistics,
    Submit,
    WorkerReady,
)
from helios.worker.peers import AnswerPeer
from helios.worker.recipient import Recipient

# What its methods give, and tests script.
from helios.worker.recipient import RequestEvent as RequestEvent


class WorkerClient(Protocol):
    """The model worker as the server sees it; `helios.worker.client.ModelClient` is one."""

    async def ready(self) -> WorkerReady:
        """Waits for start-up. Raises HeliosError if it fails."""

    def begin(self, request: Submit, recipient: Recipient) -> None:
        """Sends a request, whose events go to `recipient` up to its last, or until `leave`. Raises
        the worker's failure if it is dead; the recipient hears of a later one."""

    def leave(self, request_id: int) -> None:
        """Cancels a request unless it has ended; its recipient hears no more."""

    def cancel(self, request_id: int) -> None:
        """Ends a request with a `cancelled` finish, unless it has ended."""

    def cancel_all(self) -> None:
        """Ends every request at once with a `cancelled` finish, and every one that still comes."""

    async def statistics(self) -> Statistics:
        """Counters and gauges now. Raises the worker's failure."""

    async def reset_prefix_cache(self) -> None:
        """Returns once nothing computed before can be reused. Raises as `statistics`."""

    async def ask_peers(self, kind: str, payload: bytes) -> list[bytes]:
        """What the other HTTP processes answer. Raises as `statistics`."""

    def answer_peers(self, answer: AnswerPeer) -> None:
        """`answer` is what the others get."""

    async def close(self) -> None:
        """Ends the worker."""

    @property
    def failure(self) -> HeliosError | None:
        """Why the worker can't serve any more, if so."""

    @property
    def unsound(self) -> str:
        """What is wrong with its books, if they don't agree."""


class Phase(Enum):
    """What the process is doing."""

    LOADING_CORE = "loading_core"
    LOADING_MODEL = "loading_model"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that is ready to serve, with everything that requests need of it. `preparation` has
    `preparation_slots` threads."""

    frontend: Frontend
    client: WorkerClient
    admission: Admission
    preparation: ThreadPoolExecutor
    namespace: str
    digest: str
    ready: WorkerReady
    created: int
    preparation_slots: int = 1

    @property
    def kernel_path(self) -> str:
        """Target and instruction set that the worker runs."""
        return self.ready.kernel_path

    @property
    def served_id(self) -> str:
        """The name that answers carry."""
        return self.frontend.contract.served_id

    @property
    def names(self) -> tuple[str, ...]:
        """The names that requests may use."""
        return (self.served_id, *self.frontend.contract.aliases)

    @property
    def system_fingerprint(self) -> str:
        """Names core and kernel path, which together with a seed decide every answer."""
        return f"fp_{self.digest[:12]}_{self.kernel_path.replace('/', '-')}"


class Lifecycle:
    """The phase and, once there is one, the served model. `watch` knows whether the device moves;
    without one it is taken to. `options` are those in force, as they may be shown."""

    def __init__(
        self, watch: DeviceWatch | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.watch = watch
        self.options = options or {}
        self.startup_ms: dict[str, float] = {}
        self.model: ServedModel | None = None
        # What other HTTP processes get from this one.
        self.answer_peers: AnswerPeer | None = None
        self._phase = Phase.LOADING_CORE
        self._error: HeliosError | None = None
        self._began = time.monotonic()

    def mark(self, phase: str) -> None:
        """Notes that a start-up phase ended now, in milliseconds since the process began to
        load."""
        self.startup_ms[phase] = round((time.monotonic() - self._began) * 1e3, 1)

    def core_opened(self) -> None:
        """The core is open; its model is being loaded."""
        if self._phase is Phase.LOADING_CORE:
            self._phase = Phase.LOADING_MODEL

    def serve(self, model: ServedModel) -> None:
        """Start-up is over."""
        self.model = model
        if self.answer_peers is not None:
            model.client.answer_peers(self.answer_peers)
        if self._phase in (Phase.LOADING_CORE, Phase.LOADING_MODEL):
            self._phase = Phase.READY

    def drain(self) -> None:
        """No new requests from now on."""
        if self._phase is not Phase.FAILED:
            self._phase = Phase.DRAINING

    def fail(self, error: HeliosError) -> None:
        """The server can't serve."""
        self._phase, self._error = Phase.FAILED, error

    @property
    def error(self) -> HeliosError | None:
        """Why the server can't serve."""
        if self._error is None and self.model is not None:
            return self.model.client.failure
        return self._error

    @property
    def unsound(self) -> str:
        """What the worker has found wrong with its own books; it serves nevertheless."""
        return "" if self.model is None else self.model.client.unsound

    @property
    def stalled(self) -> str:
        """What has stopped moving although there is work, if so; it may go on."""
        return "" if self.watch is None else self.watch.stalled

    @property
    def phase(self) -> Phase:
        """What the process is doing; a dead worker counts as failed."""
        if self._phase is Phase.READY and self.error is not None:
            return Phase.FAILED
        return self._phase

    def readiness(self) -> Readiness:
        """The body of `/ready`."""
        phase = self.phase
        if phase is Phase.READY and (stalled := self.stalled):
            return Readiness(False, "stalled", f"{stalled}. Ask another server", self.startup_ms)
        if phase is Phase.READY:
            return Readiness(True, startup_ms=self.startup_ms)
        reason: Literal["loading_core", "loading_model", "draining", "failed"] = phase.value
        return Readiness(False, reason, self._message(phase), self.startup_ms)

    def serving(self) -> ServedModel:
        """The model, if it takes requests now. Raises ApiError 503 or 500 if not."""
        phase = self.phase
        if phase is Phase.READY:
            assert self.model is not None
            return self.model
        if phase is Phase.FAILED:
            raise ApiError(500, self._message(phase), code="model_failed")
        raise ApiError(503, self._message(phase), code=phase.value, retry_after_s=1)

    def _message(self, phase: Phase) -> str:
        match phase:
            case Phase.LOADING_CORE:
                return "the core is being opened. Try again in a moment"
            case Phase.LOADING_MODEL:
                return "the model is being loaded. Try again in a moment"
            case Phase.DRAINING:
                return "the server is shutting down. Ask another one"
            case _:
                return f"the model can't serve ({self.error}). Restart the server"
