"""The options of `helios serve` that are about HTTP alone, as Typer reads them.

What they amount to is in `helios.server.options`; the command itself is `cli_serve`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

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
    typer.Option(
        "--strict-fields",
        help="Refuse body fields that nobody knows, instead of ignoring and naming them.",
    ),
]
ApiKey = Annotated[
    list[str] | None,
    typer.Option(
        help="A key that requests need; may be given several times. Whoever can list processes sees"
        " it: better use --api-key-file or HELIOS_API_KEY. Default: no key is needed.",
        rich_help_panel=_ACCESS,
    ),
]
ApiKeyFile = Annotated[
    list[Path] | None,
    typer.Option(
        help="File of such keys, one a line; lines that begin with # are comments.",
        rich_help_panel=_ACCESS,
    ),
]
OpenMetrics = Annotated[
    bool,
    typer.Option(
        "--open-metrics",
        help="Let /metrics be read without a key, as /health, /ready and /version are.",
        rich_help_panel=_ACCESS,
    ),
]
CorsOrigin = Annotated[
    list[str] | None,
    typer.Option(
        help="Origin whose web pages may ask, like https://example.org, or * for any; may be given"
        " several times. Default: none.",
        rich_help_panel=_ACCESS,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        help="Serve HTTPS with this certificate (PEM, intermediate ones behind it).",
        rich_help_panel=_TLS,
    ),
]
TlsKey = Annotated[
    Path | None, typer.Option(help="The certificate's private key (PEM).", rich_help_panel=_TLS)
]
TlsKeyPasswordFile = Annotated[
    Path | None,
    typer.Option(help="File whose first line is that key's password.", rich_help_panel=_TLS),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        help="Take only clients with a certificate of one of these authorities (PEM).",
        rich_help_panel=_TLS,
    ),
]
MaxBodySize = Annotated[
    str | None,
    typer.Option(help="Largest request body, like 64MiB; default: 16MiB.", rich_help_panel=_LIMITS),
]
HeadTimeout = Annotated[
    float,
    typer.Option(
        help="Seconds for a request's head, and before it for a TLS handshake.",
        rich_help_panel=_LIMITS,
    ),
]
BodyTimeout = Annotated[
    float, typer.Option(help="Seconds for a request's body.", rich_help_panel=_LIMITS)
]
KeepAlive = Annotated[
    float,
    typer.Option(
        help="Seconds that a connection may be idle between requests.", rich_help_panel=_LIMITS
    ),
]
RequestTimeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds from a request's body to the end of its answer; default: no limit.",
        rich_help_panel=_LIMITS,
    ),
]
WriteTimeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which a client that takes nothing of its answer is dropped; default:"
        " it may pause for ever.",
        rich_help_panel=_LIMITS,
    ),
]
MaxConnections = Annotated[
    int, typer.Option(help="Connections that may be open at once.", rich_help_panel=_LIMITS)
]
ShutdownTimeout = Annotated[
    float,
    typer.Option(
        help="Seconds that running requests may take after SIGTERM, before the five in which"
        " connections are drained.",
        rich_help_panel=_LIMITS,
    ),
]
LogLevelOption = Annotated[
    LogLevel, typer.Option(help="The least severe lines.", rich_help_panel=_LOGS)
]
LogFormatOption = Annotated[
    LogFormat, typer.Option(help="Lines for people, or JSON objects.", rich_help_panel=_LOGS)
]
NoAccessLog = Annotated[
    bool,
    typer.Option(
        "--no-access-log", help="Don't log a line for each request.", rich_help_panel=_LOGS
    ),
]
RootPath = Annotated[
    str,
    typer.Option(
        help="Prefix below which clients see the server, like /llm, whether or not the proxy takes"
        " it off.",
        rich_help_panel=_PROXY,
    ),
]
ForwardedAllowIps = Annotated[
    str,
    typer.Option(
        help="Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are"
        " believed, with commas between them; * for all. Default: none.",
        rich_help_panel=_PROXY,
    ),
]
