"""`helios serve` on a core with two ranks: on the cpu, and on two GPUs over the stand-in driver."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helios.core import open_core
from ignition.preparation import signing
from tests.ranked_cores import write_ranked_core
from tests.server.real import NAMESPACE, ServerProcess, run_cli, server_process
from tests.server.test_cuda_server import ask, serving
from tests.standin_driver.building import needs_standin
from tests.standin_driver.cuda_core import write_cuda_core

ACCEPT = ("--accept", NAMESPACE)
WriteRanks = Callable[..., Path]


@pytest.fixture(scope="module")
def write_ranks(publisher_key: Path, tmp_path_factory: pytest.TempPathFactory) -> WriteRanks:
    key = signing.read_private_key(publisher_key)

    def written(core: Path, **changes: object) -> Path:
        folder = tmp_path_factory.mktemp("ranks") / "core"
        return write_ranked_core(open_core(core, accept=NAMESPACE), folder, key, **changes)  # type: ignore[arg-type]

    return written


@pytest.fixture(scope="module")
def two_ranks(core_folder: Path, write_ranks: WriteRanks) -> Path:
    return write_ranks(core_folder)


@pytest.fixture(scope="module")
def two_gpus(
    core_folder: Path,
    publisher_key: Path,
    write_ranks: WriteRanks,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    needs_standin()
    key = signing.read_private_key(publisher_key)
    core = open_core(core_folder, accept=NAMESPACE)
    return write_ranks(write_cuda_core(core, tmp_path_factory.mktemp("cuda") / "core", key))


def test_two_ranks_on_the_cpu_answer_as_one(two_ranks: Path, real_server: ServerProcess) -> None:
    with server_process(two_ranks, "--threads", "2") as server:
        expected = ask(real_server).json()["choices"]
        with ThreadPoolExecutor(4) as pool:
            for answer in pool.map(lambda _: ask(server), range(6)):
                assert answer.json()["choices"] == expected
        one = real_server.http.get("/server_info").json()["core"]
        two = server.http.get("/server_info").json()["core"]
        assert (one["ranks"], two["ranks"]) == (1, 2)
        # Each rank has half of the host's memory, which changes with time.
        pages = two["capacities"]["cache_pages"]
        page_nbytes = one["capacities"]["cache_nbytes"] / one["capacities"]["cache_pages"]
        assert two["capacities"]["cache_nbytes"] == pytest.approx(2 * pages * page_nbytes, rel=0.5)
        assert server.http.get("/health").status_code == 200
        assert server.terminate() == 0


def test_two_gpus_answer_as_the_cpu(
    two_gpus: Path, real_server: ServerProcess, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with serving(two_gpus, log, STANDIN_DEVICES="2") as server:
        assert "cuda/sm_90" in server.ready
        (expected,) = ask(real_server).json()["choices"]
        with ThreadPoolExecutor(4) as pool:
            for answer in pool.map(lambda _: ask(server), range(6)):
                (choice,) = answer.json()["choices"]
                assert choice["text"] == expected["text"]
        assert server.http.get("/server_info").json()["core"]["ranks"] == 2
        assert server.terminate() == 0
    assert log.read_text().count("GPU memory: ") == 2


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        ("run@1:700:25", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuGraphLaunch@0:2:25", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("hang@1:1:25", "hasn't ended after 0.2 s"),
    ],
)
def test_a_gpu_of_two_that_fails_makes_the_server_say_which_and_why(
    two_gpus: Path, tmp_path: Path, fails: str, reason: str
) -> None:
    log = tmp_path / "log"
    settings = {"STANDIN_FAIL": fails, "STANDIN_ROUND_LIMIT_S": "0.2", "STANDIN_DEVICES": "2"}
    rank = fails.partition("@")[2][0]
    with serving(two_gpus, log, **settings) as server:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask(server), range(12)))
        failed = [answer for answer in answers if answer.status_code != 200]
        assert failed
        assert all(answer.status_code in (500, 503) for answer in failed)
        health = server.http.get("/health")
        assert health.status_code == 500
        assert reason in health.text
        assert f"rank {rank}, " in health.text
        assert server.terminate() in (0, 1)


def half(content: bytes) -> bytes:
    """The first half of the weights, and zeros."""
    return content[: len(content) // 2].ljust(len(content), b"\0")


def test_ranks_that_disagree_fail_requests_and_health(
    core_folder: Path, write_ranks: WriteRanks
) -> None:
    torn = write_ranks(core_folder, weights={1: half})
    with server_process(torn, "--threads", "2", "--no-oracle") as server:
        answers = [ask(server) for _ in range(3)]
        assert answers[-1].status_code in (500, 503)
        health = server.http.get("/health")
        assert health.status_code == 500
        assert "rank 1, round" in health.text
        assert "commits something else than rank 0: tokens" in health.text
        server.terminate()


def test_one_gpu_for_two_ranks_is_refused_with_both_counts(two_gpus: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        pytest.raises((AssertionError, IndexError)),
        serving(two_gpus, log, STANDIN_DEVICES="1"),
    ):
        pass
    assert "its 2 ranks need a GPU each; the driver sees 1" in log.read_text()


def test_commands_tell_of_every_rank(
    two_ranks: Path, core_folder: Path, write_ranks: WriteRanks
) -> None:
    shown = run_cli("inspect", two_ranks)
    assert shown.returncode == 0, shown.stderr
    assert "cpu (2 ranks)" in shown.stdout
    words = " ".join(shown.stdout.split())  # titles are wrapped
    assert words.count("Memory on cpu, each of ranks 0, 1 with 8 slots") == 1
    replayed = run_cli("verify", two_ranks, *ACCEPT, "--replay", "--threads", 2)
    assert replayed.returncode == 0, replayed.stderr
    assert " on 2 ranks agree with the reference" in replayed.stdout
    torn = write_ranks(core_folder, weights={1: half})
    shown = run_cli("inspect", torn, "--program", "decode.b1")
    assert [
        line.strip() for line in shown.stdout.splitlines() if line.startswith("decode.b1,")
    ] == [
        "decode.b1, rank 0",
        "decode.b1, rank 1",
    ]
    asked = run_cli("serve", two_ranks, *ACCEPT, "--cache-memory", "1024GiB", "--port", 0)
    assert asked.returncode == 2
    assert "cache size: 1.00 TiB asked for" in asked.stderr
