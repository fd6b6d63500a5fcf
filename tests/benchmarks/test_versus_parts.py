"""What benchmarks/versus.py reads: servers' streams, programs' output, the kernel's accounts; and
how it drives processes."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest
from benchmarks.peers.llama_cpp_tools import batched_rate, perplexity
from benchmarks.versus_parts import clients
from benchmarks.versus_parts.drivers import Driver
from benchmarks.versus_parts.environments import Unavailable, last_line, run
from benchmarks.versus_parts.files import Files, nbytes
from benchmarks.versus_parts.machine import Memory, parse_rollup, processes, resident

# Some servers' heads end like a last chunk.
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nkeep-alive: max=100\r\n\r\n"
BATCHED = """
main: n_kv_max = 1536

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|    64 |    128 |    8 |   1536 |    0.401 |  1276.81 |    1.843 |   555.61 |    2.244 |   684.49 |

"""
ROLLUP = """55d0-7ffc ---p 00000000 00:00 0                          [rollup]
Rss:               46988 kB
Pss:               30745 kB
Pss_Dirty:         25432 kB
Private_Clean:         0 kB
"""


def test_an_exchange_ends_with_the_last_chunk() -> None:
    exchange = clients.Exchange()
    assert not exchange.take(HEAD, 0.1)
    assert exchange.first_s is None
    assert not exchange.take(b'10\r\ndata: {"text": "a"}\r\n', 0.25)
    assert not exchange.take(b'10\r\ndata: {"text": "b"}\r\n', 0.5)
    assert not exchange.take(b'9\r\ndata: {"usage":{"completion_tokens":5}}\r\n', 1.0)
    assert exchange.take(b"0\r\n\r\n", 1.25)
    assert (exchange.first_s, exchange.last_s, exchange.output_tokens) == (0.25, 1.25, 5)
    assert exchange.decode_rate == 4.0


def test_a_refusal_ends_an_exchange_and_has_no_tokens() -> None:
    exchange = clients.Exchange()
    assert exchange.take(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}", 0.1)
    with pytest.raises(ValueError, match="429 Too Many"):
        _ = exchange.output_tokens


def test_a_wave_counts_from_its_start_to_its_last_arrival() -> None:
    usage = b'data: {"completion_tokens": 30}'
    wave = clients.Wave(tuple(clients.Exchange(0.1, last_s, usage) for last_s in (1.0, 2.0, 1.5)))
    assert wave.output_rate == 45.0


def test_prompts_are_different() -> None:
    every = clients.prompts(random.Random(1), 8, 64)
    assert {len(one) for one in every} == {64}
    assert len({tuple(one[:4]) for one in every}) == 8


def test_a_wave_over_sockets() -> None:
    """Two clients of a server that answers in pieces."""
    received: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(1 << 16))
                for piece in (HEAD, b'data: {"completion_tokens": 2}', b"\r\n0\r\n\r\n"):
                    connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        payloads = [clients.payload("m", [n], 2) for n in (7, 8)]
        found = clients.wave(listener.getsockname()[1], payloads)
        thread.join()
    assert [exchange.output_tokens for exchange in found.exchanges] == [2, 2]
    assert sorted(received) == sorted(payloads)
    assert b'"prompt": [7]' in payloads[0]


def test_a_server_that_hangs_up_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: listener.accept()[0].close())
        thread.start()
        with pytest.raises(ConnectionError):
            clients.wave(listener.getsockname()[1], [clients.payload("m", [7], 2)])
        thread.join()


def test_output_of_llama_cpp() -> None:
    assert batched_rate(BATCHED) == 555.61
    assert perplexity("[1]9.1,\nFinal estimate: PPL = 12.3456 +/- 0.51\n") == 12.3456
    with pytest.raises(ValueError, match="no estimate"):
        perplexity("error: too few tokens")


def test_memory_of_processes() -> None:
    assert parse_rollup(ROLLUP) == Memory(46988 * 1024, 30745 * 1024)
    assert processes(os.getpid())[0] == os.getpid()
    here = resident(os.getpid())
    assert here.rss_nbytes >= here.pss_nbytes > 1 << 20


ECHO = """
import sys
sys.path.insert(0, sys.argv[1])
from line_protocol import answer, silence
answers = silence()
print("not an answer")
def double(value):
    return {"twice": 2 * value}
answer({"double": double, "die": lambda: sys.exit("no memory")}, answers)
"""
PEERS = Path(__file__).parents[2] / "benchmarks/peers"


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver([sys.executable, "-c", ECHO, str(PEERS)], tmp_path / "log", {})


def test_a_driver_answers_and_says_what_it_cannot(driver: Driver) -> None:
    try:
        assert driver.ask("double", value=4) == {"twice": 8}
        with pytest.raises(Unavailable, match="TypeError"):
            driver.ask("double")
        driver.rest()
        with driver.awake():
            assert driver.ask("double", value=5) == {"twice": 10}
    finally:
        driver.close()
    assert driver.process.returncode == -signal.SIGTERM


def test_a_driver_that_ends_is_unavailable_with_its_last_words(driver: Driver) -> None:
    with pytest.raises(Unavailable, match="no memory"):
        driver.ask("die")
    driver.close()


def test_a_command_that_fails_is_unavailable_with_its_last_line() -> None:
    with pytest.raises(Unavailable, match=r"no such thing$"):
        run([sys.executable, "-c", "import sys; print('x'); sys.exit('no such thing')"])
    assert last_line("a\n\nb\n \n") == "b"
    assert last_line("") == "it ended without a word"


def test_what_is_made_is_made_once_and_whole(tmp_path: Path) -> None:
    files = Files(tmp_path, tmp_path / "model.gguf", 2, lambda _: None)
    made: list[Path] = []

    def make(path: Path) -> None:
        path.mkdir()
        (path / "weights").write_bytes(bytes(len(made)))
        made.append(path)
        if len(made) == 1:
            raise Unavailable("the disk is full")

    with pytest.raises(Unavailable):
        files._made("forms/a", make)
    assert not (tmp_path / "forms/a").exists()
    assert files._made("forms/a", make) == files._made("forms/a", make) == tmp_path / "forms/a"
    assert len(made) == 2
    assert nbytes(tmp_path / "forms/a") == 1
    assert files.llama_cpp("q4_1") == tmp_path / "model.gguf"
