"""`/health` over live worker processes: books that don't agree, a device that fails."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import httpx
import pytest

from helios.server.app import build_app
from helios.server.lifecycle import Lifecycle
from helios.worker.client import ModelClient
from helios.worker.launch import launch
from tests.server.scripted import served_model
from tests.worker.test_client import FAKE_WORKER, OPTIONS

BODY = {"model": "sample", "prompt": [3, 1, 4, 1, 5], "max_tokens": 6, "seed": 5}


def over_a_worker(mode: str, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """Runs a scenario against the application over a worker process."""

    async def run() -> None:
        command = (sys.executable, str(FAKE_WORKER), mode)
        client = await ModelClient.attach(launch(OPTIONS, command=command))
        try:
            await client.ready()
            lifecycle = Lifecycle()
            lifecycle.serve(served_model(client))
            transport = httpx.ASGITransport(build_app(lifecycle))
            async with httpx.AsyncClient(transport=transport, base_url="http://helios") as http:
                await scenario(http)
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(run(), 60))


async def unhealthy(http: httpx.AsyncClient) -> dict[str, str]:
    """The first unhealthy answer. It is asked for over and over: what is waited for happens in
    the worker."""
    while True:
        answer = await http.get("/health")
        if answer.status_code != 200:
            assert answer.status_code == 500
            said: dict[str, str] = answer.json()
            return said
        await asyncio.sleep(0)


async def sample(http: httpx.AsyncClient, name: str) -> float:
    lines = (await http.get("/metrics")).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_a_lost_page_makes_a_server_unsound_that_goes_on_answering() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        assert (await http.get("/health")).json()["status"] == "ok"
        first = await http.post("/v1/completions", json=BODY)
        said = await unhealthy(http)
        assert said["status"] == "unsound"
        assert "page books don't balance" in said["message"]
        assert await sample(http, "flare_integrity_violations_total") >= 1
        assert (await http.get("/ready")).status_code == 200
        again = await http.post("/v1/completions", json=BODY)
        assert again.json()["choices"] == first.json()["choices"]

    over_a_worker("loses a page", scenario)


def test_sound_books_are_healthy() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        for _ in range(3):
            assert (await http.post("/v1/completions", json=BODY)).status_code == 200
        assert (await http.get("/health")).json() == {"status": "ok", "message": ""}
        assert await sample(http, "flare_integrity_violations_total") == 0

    over_a_worker("serves", scenario)


def test_a_device_that_fails_is_said_with_its_reason() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        broken = await http.post("/v1/completions", json=BODY)
        assert broken.status_code == 500
        assert broken.json()["error"]["code"] in ("execution_failed", "model_failed")
        said = await unhealthy(http)
        assert said["status"] == "failed"
        assert "the program broke" in said["message"]
        assert (await http.get("/ready")).json()["reason"] == "failed"

    over_a_worker("breaks", scenario)


@pytest.mark.parametrize("mode", ["reuses", "breaks"])
def test_resetting_the_prefix_cache(mode: str) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        async def cached() -> int:
            answer = await http.post("/v1/completions", json=BODY)
            return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

        if mode == "breaks":
            await http.post("/v1/completions", json=BODY)
            await unhealthy(http)
            refused = await http.post("/reset_prefix_cache")
            assert (refused.status_code, refused.json()["error"]["code"]) == (500, "model_failed")
            return
        assert [await cached(), await cached()] == [0, 4]
        answer = await http.post("/reset_prefix_cache")
        assert (answer.status_code, answer.json()) == (200, {})
        assert [await cached(), await cached()] == [0, 4]
        assert (await http.get("/reset_prefix_cache")).status_code == 405

    over_a_worker(mode, scenario)
