"""Who may ask: checks API keys and answers browsers' questions about origins.

ASGI applications around another one. What is refused here is refused before anything of the body
is read.
"""

from __future__ import annotations

import hmac
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from helios.server.failures import ApiError
from helios.server.options.access import AccessOptions, key_digest
from helios.server.responses import send_error
from helios.server.route_paths import METRICS, PROBES, route_path

_SCHEME: Final = b"bearer"
EXPOSED_HEADERS: Final = ("x-request-id", "x-helios-ignored", "retry-after", "www-authenticate")


def with_keys(app: ASGIApp, options: AccessOptions) -> ASGIApp:
    """`app` for those who have one of the keys; for all if there is none."""
    return KeyCheck(app, options) if options.key_digests else app


def with_origins(app: ASGIApp, options: AccessOptions) -> ASGIApp:
    """`app` for pages of the origins too. Credentials other than API keys don't exist here, so
    browsers needn't send any."""
    if not options.origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=options.origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=EXPOSED_HEADERS,
    )


class KeyCheck:
    """Lets requests pass that carry a key, and those to paths that need none."""

    def __init__(self, app: ASGIApp, options: AccessOptions) -> None:
        self._app = app
        self._digests = options.key_digests
        self._open = PROBES | {METRICS} if options.open_metrics else PROBES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it with a 401."""
        if scope["type"] != "http" or route_path(scope) in self._open:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and self._is_known(given[0]):
            await self._app(scope, receive, send)
            return
        await send_error(_refusal(missing=not given), scope, receive, send)

    def _is_known(self, authorization: bytes) -> bool:
        """Compares with every key, in a time that tells neither which one nor how much of it."""
        scheme, _, key = authorization.partition(b" ")
        digest = key_digest(key.strip(b" "))
        matches = [hmac.compare_digest(known, digest) for known in self._digests]
        return scheme.lower() == _SCHEME and any(matches)


def _refusal(*, missing: bool) -> ApiError:
    """A 401. What was sent isn't repeated: it may be a key with a typing error."""
    if missing:
        text = "this server wants an API key. Send it as Authorization: Bearer KEY"
        challenge = 'Bearer realm="helios"'
    else:
        text = "no API key of this server. Check what is sent as Authorization: Bearer KEY"
        challenge = 'Bearer realm="helios", error="invalid_token"'
    headers = {"www-authenticate": challenge}
    return ApiError(401, text, code="invalid_api_key", headers=headers)
