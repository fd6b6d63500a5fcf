"""Passes of benchmarks/versus.py over engines and servers that are a few lines long."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest
from benchmarks.versus_parts.aims import Row
from benchmarks.versus_parts.engines import Command, Contestant, Server, Weights
from benchmarks.versus_parts.environments import Unavailable
from benchmarks.versus_parts.passes import Comparison, in_process, over_http

PEERS = Path(__file__).parents[2] / "benchmarks/peers"
ENGINE = """
import sys
sys.path.insert(0, sys.argv[1])
from line_protocol import answer, silence
answers = silence()
def prefill(tokens):
    return {"tokens_per_s": float(tokens)}
def decode(lanes, prompt_tokens, tokens):
    if lanes > int(sys.argv[2]):
        raise MemoryError("too many lanes")
    return {"tokens_per_s": 100.0 * lanes}
answer({"prefill": prefill, "decode": decode}, answers)
"""
SERVER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.content(json.dumps({"data": [{"id": "m"}]}).encode())
    def content(self, content):
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert asked["model"] == "m" and asked["stream"]
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        usage = json.dumps({"completion_tokens": asked["max_tokens"] - int(sys.argv[2])})
        for text in ("data: {}", "data: " + usage):
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(text), text.encode()))
        self.wfile.write(b"0\\r\\n\\r\\n")
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Near:
    """Processors that are always as far apart."""

    def one_way_ns(self) -> float:
        return 25.0


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    (tmp_path / "logs").mkdir()
    return Comparison(tmp_path, Near(), defaultdict(list))


def engine(name: str, weights: Weights = Weights.OTHER, lanes: int = 32) -> Contestant:
    command = Command([sys.executable, "-c", ENGINE, str(PEERS), str(lanes)])
    return Contestant(name, "int4", weights, lambda: command)


def server(name: str, short_of: int = 0, slots: tuple[int, ...] = (32,)) -> Contestant:
    def start(port: int) -> Command:
        return Command([sys.executable, "-c", SERVER, str(port), str(short_of)])

    return Contestant(
        name, "int4", Weights.OTHER, servers=lambda: [Server(start, slots=n) for n in slots]
    )


def test_every_pass_measures_everyone(comparison: Comparison) -> None:
    in_process(comparison, [engine("a"), engine("b", Weights.BF16)], passes=2)
    assert comparison.samples["a int4", Row.PREFILL] == [512.0, 512.0]
    assert comparison.samples["a int4", Row.DECODE_32] == [3200.0, 3200.0]
    assert comparison.samples["a int4", Row.DISTANCE] == [25.0] * 4
    assert comparison.samples["b int4", Row.DECODE_1_BF16] == [100.0, 100.0]
    assert ("a int4", Row.DECODE_1_BF16) not in comparison.samples
    assert not comparison.skipped


def test_who_fails_is_skipped_and_the_others_go_on(comparison: Comparison) -> None:
    def missing() -> Command:
        raise Unavailable("no such package")

    gone = Contestant("gone", "int4", Weights.OTHER, missing)
    in_process(comparison, [gone, engine("small", lanes=8), engine("a")], passes=2)
    assert comparison.skipped == {
        "gone int4": "no such package",
        "small int4": "MemoryError: too many lanes",
    }
    assert ("small int4", Row.DECODE_8) not in comparison.samples
    assert len(comparison.samples["a int4", Row.DECODE_8]) == 2


def test_servers_are_started_for_each_pass(comparison: Comparison) -> None:
    over_http(comparison, [server("a")], passes=2)
    assert not comparison.skipped
    rows = {row: len(values) for (_, row), values in comparison.samples.items()}
    once = (
        Row.READY,
        Row.HTTP_1,
        Row.HTTP_8,
        Row.FIRST_TOKEN,
        Row.SERVING_RSS,
        Row.SERVING_PSS,
        Row.HTTP_32,
    )
    assert rows == {Row.DISTANCE_SERVING: 4, **dict.fromkeys(once, 2)}


def test_a_second_server_is_for_many_clients_alone(comparison: Comparison) -> None:
    over_http(comparison, [server("a", slots=(8, 32))], passes=1)
    assert not comparison.skipped
    assert len(comparison.samples["a int4", Row.HTTP_32]) == 1
    assert len(comparison.samples["a int4", Row.READY]) == 1


def test_a_server_that_answers_too_little_is_skipped(comparison: Comparison) -> None:
    over_http(comparison, [server("a", short_of=1)], passes=2)
    assert comparison.skipped == {"a int4": "7 tokens instead of 8"}
    assert not comparison.samples
