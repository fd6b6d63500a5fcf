"""The options of `helios serve` that are about HTTP alone.

What they amount to is in `helios.server.options`; the command itself is `cli_serve`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from helios.command_line import Option
from helios.logs import LogFormat, LogLevel
from helios.server.options.limits import LimitOptions

DEFAULT_LIMITS: Final = LimitOptions()
_ACCESS: Final = "Who may ask"
_TLS: Final = "HTTPS"
_LIMITS: Final = "Limits on clients"
_LOGS: Final = "Logs, on standard error"
_PROXY: Final = "Behind a proxy"

StrictFields = Annotated[
    bool,
    Option(
        "Refuse body fields that nobody knows, instead of ignoring and naming them.",
        name="--strict-fields",
    ),
]
ApiKey = Annotated[
    list[str] | None,
    Option(
        "A key that requests need; may be given several times. Whoever can list processes sees"
        " it: better use --api-key-file or HELIOS_API_KEY. Default: no key is needed.",
        panel=_ACCESS,
    ),
]
ApiKeyFile = Annotated[
    list[Path] | None,
    Option(
        "File of such keys, one a line; lines that begin with # are comments.",
        panel=_ACCESS,
    ),
]
OpenMetrics = Annotated[
    bool,
    Option(
        "Let /metrics be read without a key, as /health, /ready and /version are.",
        panel=_ACCESS,
        name="--open-metrics",
    ),
]
CorsOrigin = Annotated[
    list[str] | None,
    Option(
        "Origin whose web pages may ask, like https://example.org, or * for any; may be given"
        " several times. Default: none.",
        panel=_ACCESS,
    ),
]
TlsCert = Annotated[
    Path | None,
    Option(
        "Serve HTTPS with this certificate (PEM, intermediate ones behind it).",
        panel=_TLS,
    ),
]
TlsKey = Annotated[Path | None, Option("The certificate's private key (PEM).", panel=_TLS)]
TlsKeyPasswordFile = Annotated[
    Path | None,
    Option("File whose first line is that key's password.", panel=_TLS),
]
TlsClientCa = Annotated[
    Path | None,
    Option(
        "Take only clients with a certificate of one of these authorities (PEM).",
        panel=_TLS,
    ),
]
MaxBodySize = Annotated[
    str | None,
    Option("Largest request body, like 64MiB; default: 16MiB.", panel=_LIMITS),
]
HeadTimeout = Annotated[
    float,
    Option(
        "Seconds for a request's head, and before it for a TLS handshake.",
        panel=_LIMITS,
    ),
]
BodyTimeout = Annotated[float, Option("Seconds for a request's body.", panel=_LIMITS)]
KeepAlive = Annotated[
    float,
    Option("Seconds that a connection may be idle between requests.", panel=_LIMITS),
]
RequestTimeout = Annotated[
    float | None,
    Option(
        "Seconds from a request's body to the end of its answer; default: no limit.",
        panel=_LIMITS,
    ),
]
WriteTimeout = Annotated[
    float | None,
    Option(
        "Seconds after which a client that takes nothing of its answer is dropped; default:"
        " it may pause for ever.",
        panel=_LIMITS,
    ),
]
MaxConnections = Annotated[
    int, Option("Connections that may be open at once.", panel=_LIMITS, maximum=1 << 20)
]
ShutdownTimeout = Annotated[
    float,
    Option(
        "Seconds that running requests may take after SIGTERM, before the five in which"
        " connections are drained.",
        panel=_LIMITS,
    ),
]
LogLevelOption = Annotated[LogLevel, Option("The least severe lines.", panel=_LOGS)]
LogFormatOption = Annotated[LogFormat, Option("Lines for people, or JSON objects.", panel=_LOGS)]
NoAccessLog = Annotated[
    bool,
    Option("Don't log a line for each request.", panel=_LOGS, name="--no-access-log"),
]
RootPath = Annotated[
    str,
    Option(
        "Prefix below which clients see the server, like /llm, whether or not the proxy takes"
        " it off.",
        panel=_PROXY,
    ),
]
ForwardedAllowIps = Annotated[
    str,
    Option(
        "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are"
        " believed, with commas between them; * for all. Default: none.",
        panel=_PROXY,
    ),
]
