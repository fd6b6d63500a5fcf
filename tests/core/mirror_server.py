"""An HTTP server on this machine that serves files well or in every wrong way.

The first part of a path says how: `/good/NAME`, `/lies/NAME`. What was asked for is on record.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

PIECE = bytes(64 << 10)


class Clock:
    """Seconds, of which one goes by with each piece that a server drips: whoever measures rates by
    it finds out at once, however quick or busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class MirrorServer(ThreadingHTTPServer):
    """Serves `files` by name. `requests` holds behaviour, name and range of each request."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, files: dict[str, bytes]) -> None:
        super().__init__((address, 0), _Handler)
        self.files = files
        self.requests: list[tuple[str, str, str]] = []
        self.released = threading.Event()  # ends whatever stalls
        self.gate = threading.Event()  # what gated answers wait for
        self.busy = 0  # requests that `/busy` still refuses
        self.secure = False
        self.clock = Clock()

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"{'https' if self.secure else 'http'}://{host!s}:{port}"

    def ranges(self) -> list[str]:
        """The ranges that were asked for, in order of their starts."""
        return sorted(asked for _, _, asked in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MirrorServer

    def log_message(self, format: str, *arguments: object) -> None:
        return None

    def do_GET(self) -> None:
        behaviour, _, name = self.path[1:].partition("/")
        asked = self.headers.get("Range", "")
        self.server.requests.append((behaviour, name, asked))
        first, _, last = asked.removeprefix("bytes=").partition("-")
        self.start, self.end = int(first), int(last) + 1
        self.name = name
        with contextlib.suppress(OSError):  # the other side has had enough
            BEHAVIOURS[behaviour](self)

    @property
    def content(self) -> bytes:
        return self.server.files[self.name][self.start : self.end]

    @property
    def total(self) -> int:
        return len(self.server.files[self.name])

    def head(self, status: int = 206, *, nbytes: int | None = None, **fields: str) -> None:
        """Status and header; those of a right answer where nothing else is said."""
        self.send_response(status)
        usual = {
            "Content-Range": f"bytes {self.start}-{self.end - 1}/{self.total}",
            "Content-Length": str(self.end - self.start if nbytes is None else nbytes),
        }
        for field, value in {
            **usual,
            **{k.replace("_", "-"): v for k, v in fields.items()},
        }.items():
            if value:
                self.send_header(field, value)
        self.end_headers()

    def body(self, content: bytes) -> None:
        self.wfile.write(content)


def _good(call: _Handler) -> None:
    call.head()
    call.body(call.content)


def _lies(call: _Handler) -> None:
    call.head()
    call.body(bytes([call.content[0] ^ 1]) + call.content[1:])


def _truncates(call: _Handler) -> None:
    call.head()
    call.body(call.content[:-1])
    call.close_connection = True


def _ends_early(call: _Handler) -> None:
    """Ends properly, only too soon."""
    call.head(nbytes=len(call.content) - 1)
    call.body(call.content[:-1])


def _stalls(call: _Handler) -> None:
    call.head()
    call.body(call.content[:-1])
    call.server.released.wait()


def _silent(call: _Handler) -> None:
    call.server.released.wait()


def _drips(call: _Handler) -> None:
    """A byte a second."""
    call.head()
    for _ in call.content:
        call.body(b"x")
        call.server.clock.now += 1


def _drips_first(call: _Handler) -> None:
    """Drips the first chunk, has the others."""
    (_drips if call.start == 0 else _good)(call)


def _drips_header(call: _Handler) -> None:
    call.wfile.write(b"HTTP/1.1 206 Partial Content\r\nX-Long: ")
    while True:
        call.wfile.write(b"x")
        call.server.clock.now += 1


def _hints(call: _Handler) -> None:
    """Announces an answer for ever."""
    while True:
        call.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        call.server.clock.now += 1


def _padded(call: _Handler) -> None:
    """Sends ten kilobytes a second, and one byte of them is content."""
    call.head(Content_Length="", Transfer_Encoding="chunked")
    while True:
        call.wfile.write(b"1;" + b"x" * 10_000 + b"\r\nx\r\n")
        call.server.clock.now += 1


def _slow_once(call: _Handler) -> None:
    """Drips, the first time that it is asked."""
    (_drips if len(call.server.requests) == 1 else _good)(call)


def _gated(call: _Handler) -> None:
    """Waits with its answer."""
    call.server.gate.wait()
    _good(call)


def _gated_after_first(call: _Handler) -> None:
    """Has the first chunk at once; waits with the others."""
    if call.start > 0:
        call.server.gate.wait()
    _good(call)


def _trailers(call: _Handler) -> None:
    """All of the content, and then no end of what may follow it."""
    call.head(Content_Length="", Transfer_Encoding="chunked")
    call.wfile.write(b"%x\r\n%s\r\n0\r\n" % (len(call.content), call.content))
    while True:
        call.wfile.write(b"X-More: " + b"x" * 1000 + b"\r\n")
        call.server.clock.now += 1


def _twice(call: _Handler) -> None:
    """Answers what wasn't asked as well, on the same connection."""
    _good(call)
    call.head()
    call.body(bytes(len(call.content)))


def _empty(call: _Handler) -> None:
    call.head(nbytes=0)


def _chunked(call: _Handler) -> None:
    """Right, and of no length that is said beforehand."""
    call.head(Content_Length="", Transfer_Encoding="chunked")
    for start in range(0, len(call.content), len(PIECE)):
        piece = call.content[start : start + len(PIECE)]
        call.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    call.wfile.write(b"0\r\n\r\n")


def _until_closed(call: _Handler) -> None:
    """Right, as HTTP/1.0 does it."""
    call.protocol_version = "HTTP/1.0"
    call.head(Content_Length="")
    call.body(call.content)
    call.close_connection = True


def _many_parts(call: _Handler) -> None:
    body = b"--x\r\nContent-Range: bytes %d-%d/%d\r\n\r\n%s\r\n--x--\r\n" % (
        *(call.start, call.end - 1, call.total),
        call.content,
    )
    call.head(nbytes=len(body), Content_Range="", Content_Type="multipart/byteranges; boundary=x")
    call.body(body)


def _two_lengths(call: _Handler) -> None:
    call.send_response(206)
    call.send_header("Content-Range", f"bytes {call.start}-{call.end - 1}/{call.total}")
    for nbytes in (len(call.content), 1):
        call.send_header("Content-Length", str(nbytes))
    call.end_headers()
    call.body(call.content)


def _huge_header(call: _Handler) -> None:
    """One line, longer than anybody reads."""
    call.wfile.write(b"HTTP/1.1 206 Partial Content\r\nX-Long: ")
    while True:
        call.wfile.write(b"x" * 10_000)


def _endless(call: _Handler) -> None:
    call.head(Content_Length="", Transfer_Encoding="chunked")
    while True:
        call.wfile.write(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))


def _endless_header(call: _Handler) -> None:
    call.wfile.write(b"HTTP/1.1 206 Partial Content\r\n")
    while True:
        call.wfile.write(b"X-More: " + PIECE[:1000].replace(b"\0", b"x") + b"\r\n")


def _longer(call: _Handler) -> None:
    call.head(nbytes=len(call.content) + 1)
    call.body(call.content + b"!")


def _shifted(call: _Handler) -> None:
    call.head(Content_Range=f"bytes {call.start + 1}-{call.end}/{call.total}")
    call.body(call.content)


def _other_total(call: _Handler) -> None:
    call.head(Content_Range=f"bytes {call.start}-{call.end - 1}/{call.total + 1}")
    call.body(call.content)


def _unsaid_range(call: _Handler) -> None:
    call.head(Content_Range="")
    call.body(call.content)


def _whole(call: _Handler) -> None:
    whole = call.server.files[call.name]
    call.head(200, nbytes=len(whole), Content_Range="")
    call.body(whole)


def _encoded(call: _Handler) -> None:
    call.head(Content_Encoding="gzip")
    call.body(call.content)


def _no_http(call: _Handler) -> None:
    call.wfile.write(b"SSH-2.0-mirror\r\n")
    call.close_connection = True


def _status(status: int) -> Callable[[_Handler], None]:
    def answer(call: _Handler) -> None:
        call.head(status, nbytes=0, Content_Range="", Retry_After="0")

    return answer


def _busy(call: _Handler) -> None:
    """Refuses for a while, then serves."""
    if call.server.busy > 0:
        call.server.busy -= 1
        _status(503)(call)
    else:
        _good(call)


def _breaks_once(call: _Handler) -> None:
    """Breaks off each range the first time it is asked for."""
    asked = call.server.requests[-1][2]
    if sum(again == asked for _, _, again in list(call.server.requests)) == 1:
        _truncates(call)
    else:
        _good(call)


def _first_only(call: _Handler) -> None:
    """Has the first chunk; waits before it refuses the others."""
    if call.start == 0:
        _good(call)
    else:
        call.server.gate.wait()
        _status(404)(call)


def _redirects(call: _Handler) -> None:
    """The name is, quoted, where it redirects to."""
    call.send_response(302)
    call.send_header("Location", unquote(call.name))
    call.send_header("Content-Length", "0")
    call.end_headers()


def _loops(call: _Handler) -> None:
    call.send_response(307)
    call.send_header("Location", call.path)
    call.send_header("Content-Length", "0")
    call.end_headers()


BEHAVIOURS: dict[str, Callable[[_Handler], None]] = {
    "good": _good,
    "lies": _lies,
    "truncates": _truncates,
    "ends-early": _ends_early,
    "stalls": _stalls,
    "silent": _silent,
    "drips": _drips,
    "drips-first": _drips_first,
    "drips-header": _drips_header,
    "hints": _hints,
    "padded": _padded,
    "slow-once": _slow_once,
    "gated": _gated,
    "gated-after-first": _gated_after_first,
    "trailers": _trailers,
    "twice": _twice,
    "empty": _empty,
    "chunked": _chunked,
    "until-closed": _until_closed,
    "many-parts": _many_parts,
    "two-lengths": _two_lengths,
    "huge-header": _huge_header,
    "endless": _endless,
    "endless-header": _endless_header,
    "longer": _longer,
    "shifted": _shifted,
    "other-total": _other_total,
    "unsaid-range": _unsaid_range,
    "whole": _whole,
    "encoded": _encoded,
    "no-http": _no_http,
    "missing": _status(404),
    "unsatisfiable": _status(416),
    "broken": _status(500),
    "busy": _busy,
    "breaks-once": _breaks_once,
    "first-only": _first_only,
    "redirects": _redirects,
    "loops": _loops,
}


@contextlib.contextmanager
def serving(
    files: dict[str, bytes], address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[MirrorServer]:
    """A server that runs for a while, with TLS where a context is given."""
    server = MirrorServer(address, files)
    if tls is not None:
        server.secure = True
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
