"""`/health` from the device's progress: over real sockets, with the worker's loop and a null device
that stops when a test says so, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum, auto
from typing import Any

import httpx
import pytest

from helios.runtime.devices.scripted import ScriptedDevice
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.server.app import build_app
from helios.server.http_server import EndTimes, HttpServer
from helios.server.lifecycle import Lifecycle
from helios.server.liveness import DeviceWatch, follow
from helios.worker.channel import SocketChannel
from helios.worker.client import ModelClient
from helios.worker.launch import LaunchedWorker
from helios.worker.messages import Progress
from helios.worker.model_worker import ModelWorker
from tests.server.scripted import READY, served_model
from tests.synthetic.histories import HISTORIES
from tests.synthetic.model import SyntheticModel

TIMEOUT_S = 60.0
BODY = {"model": "sample", "prompt": [3, 1, 4], "max_tokens": 3}


class Pace(Enum):
    """What a device does with the rounds that are waited for."""

    RUNS = auto()
    STOPPED = auto()  # nothing moves; waits end in time
    CRAWLS = auto()  # no round completes, but launches do
    HANGS = auto()  # waits don't end


class PacedDevice(ScriptedDevice):
    """A scripted device whose pace others set."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._pace = Pace.RUNS
        self._changed = threading.Condition()
        self.hangs = threading.Event()

    def set_pace(self, pace: Pace) -> None:
        with self._changed:
            self._pace = pace
            self._changed.notify_all()

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        with self._changed:
            while self._pace is Pace.HANGS:
                self.hangs.set()
                self._changed.wait()
            if self._pace is Pace.CRAWLS:
                self._launches += 1
            if self._pace is not Pace.RUNS:
                self._changed.wait(0.001)
                return False
        return super().wait(sequence, timeout_ms)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watch(DeviceWatch):
    """Tells a test of every answer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(TIMEOUT_S, clock)
        self.answers: asyncio.Queue[Progress] = asyncio.Queue()

    def answered(self, progress: Progress) -> None:
        super().answered(progress)
        self.answers.put_nowait(progress)


class Scene:
    """A server over a worker over a paced device. `asks` holds the watch's next question back."""

    def __init__(self, device: PacedDevice, clock: Clock, watch: Watch) -> None:
        self.device = device
        self.clock = clock
        self.watch = watch
        self.http = httpx.AsyncClient()
        self._ask = asyncio.Semaphore(0)

    async def pause(self, seconds: float) -> None:
        """Between the watch's questions."""
        assert seconds == 5.0
        await self._ask.acquire()

    async def progress(self) -> Progress:
        """The answer to another question."""
        self._ask.release()
        return await self.watch.answers.get()

    async def progress_until(self, condition: Callable[[Progress], bool]) -> None:
        """Asks over and over: what is waited for happens on the worker's thread."""
        while not condition(await self.progress()):
            pass

    async def health(self) -> tuple[int, str]:
        answer = await self.http.get("/health")
        return answer.status_code, answer.json()["status"]

    async def ready(self) -> tuple[int, str | None]:
        answer = await self.http.get("/ready")
        return answer.status_code, answer.json()["reason"]

    async def stalled_for(self) -> str:
        answer = await self.http.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "stalled")
        message: str = answer.json()["message"]
        return message


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    """Runs a scenario on a server of its own."""
    model = SyntheticModel(next(h for h in HISTORIES if h.name == "partial pages"))
    device = PacedDevice(model.contract, decode_manifest(model.manifest))
    runtime = ModelRuntime.from_parts(
        model.contract, model.manifest, model.weights(), device=device
    )
    ours, theirs = socket.socketpair()

    def work() -> None:
        channel = SocketChannel(theirs)
        channel.send([READY])
        ModelWorker(runtime, channel).run()
        channel.close()

    async def serve() -> None:
        with subprocess.Popen(["true"]) as process:
            client = await ModelClient.attach(LaunchedWorker(process, ours))
            clock = Clock()
            watch = Watch(clock)
            scene = Scene(device, clock, watch)
            lifecycle = Lifecycle(watch)
            await client.ready()
            lifecycle.serve(served_model(client))
            listener = socket.create_server(("127.0.0.1", 0))
            times = EndTimes(answers=0.5, delivery=0.1)
            server = HttpServer(build_app(lifecycle), lifecycle, times)
            serving = asyncio.create_task(server.run_on(listener))
            following = asyncio.create_task(follow(client, watch, scene.pause))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            try:
                await watch.answers.get()
                async with httpx.AsyncClient(base_url=url, timeout=60) as scene.http:
                    await scenario(scene)
            finally:
                device.set_pace(Pace.RUNS)
                server.stop()
                await serving
                await client.close()
                following.cancel()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        asyncio.run(asyncio.wait_for(serve(), 60))
    finally:
        ours.close()
        worker.join()


def ask(scene: Scene) -> asyncio.Task[httpx.Response]:
    coroutine: Coroutine[Any, Any, httpx.Response] = scene.http.post("/v1/completions", json=BODY)
    return asyncio.create_task(coroutine)


def test_a_device_that_stops_with_work_to_do_stalls_until_it_moves() -> None:
    async def scenario(scene: Scene) -> None:
        scene.device.set_pace(Pace.STOPPED)
        answer = ask(scene)
        await scene.progress_until(lambda progress: progress.working)
        await scene.progress()
        scene.clock.now += TIMEOUT_S
        await scene.progress()
        assert await scene.health() == (200, "ok")
        assert await scene.ready() == (200, None)
        scene.clock.now += 1
        await scene.progress()
        assert "the device hasn't been seen to move for 61 s" in await scene.stalled_for()
        assert await scene.ready() == (503, "stalled")
        assert not answer.done()
        scene.device.set_pace(Pace.RUNS)
        assert (await answer).status_code == 200
        await scene.progress_until(lambda progress: not progress.working)
        assert await scene.health() == (200, "ok")
        assert await scene.ready() == (200, None)

    play(scenario)


def test_a_worker_that_hangs_in_a_wait_is_stalled_too() -> None:
    async def scenario(scene: Scene) -> None:
        scene.device.set_pace(Pace.HANGS)
        answer = ask(scene)
        # Before it hangs it would answer questions.
        await asyncio.to_thread(scene.device.hangs.wait)
        asked = asyncio.create_task(scene.progress())
        while "hasn't answered" not in (await scene.http.get("/health")).json()["message"]:
            scene.clock.now += TIMEOUT_S + 1
        assert await scene.health() == (503, "stalled")
        assert await scene.ready() == (503, "stalled")
        assert not asked.done()
        scene.device.set_pace(Pace.RUNS)
        assert (await answer).status_code == 200
        await asked
        await scene.progress_until(lambda progress: not progress.working)
        assert await scene.health() == (200, "ok")

    play(scenario)


def test_a_long_round_whose_launches_go_on_is_no_stall() -> None:
    async def scenario(scene: Scene) -> None:
        scene.device.set_pace(Pace.CRAWLS)
        answer = ask(scene)
        await scene.progress_until(lambda progress: progress.working)
        for _ in range(5):
            rounds = (await scene.progress()).rounds
            scene.clock.now += TIMEOUT_S - 1
            before = scene.watch.stalled
            launches = await scene.progress()
            assert launches.rounds == rounds
            assert (before, await scene.health()) == ("", (200, "ok"))
        scene.device.set_pace(Pace.RUNS)
        assert (await answer).status_code == 200

    play(scenario)


def test_an_idle_server_never_stalls() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            scene.clock.now += 10 * TIMEOUT_S
            assert not (await scene.progress()).working
            assert await scene.health() == (200, "ok")

    play(scenario)


# ---------------------------------------------------------------- the watch alone


@pytest.mark.parametrize("moves", [Progress(True, 8, 3), Progress(True, 7, 4)])
def test_whatever_moves_is_progress(moves: Progress) -> None:
    clock = Clock()
    watch = DeviceWatch(TIMEOUT_S, clock)
    watch.answered(Progress(True, 7, 3))
    clock.now += TIMEOUT_S + 1
    assert watch.stalled
    watch.answered(moves)
    assert not watch.stalled
    clock.now += TIMEOUT_S + 1
    assert watch.stalled


def test_work_that_has_just_come_has_waited_for_nothing() -> None:
    clock = Clock()
    watch = DeviceWatch(TIMEOUT_S, clock)
    watch.answered(Progress(False, 7, 3))
    clock.now += 10 * TIMEOUT_S
    watch.answered(Progress(True, 7, 3))
    assert not watch.stalled


def test_silence_counts_from_the_question() -> None:
    clock = Clock()
    watch = DeviceWatch(TIMEOUT_S, clock)
    clock.now += 10 * TIMEOUT_S
    watch.asked()
    clock.now += TIMEOUT_S
    assert not watch.stalled
    clock.now += 1
    assert "hasn't answered for 61 s" in watch.stalled
