"""`helios trust`: whose signatures this user takes, for which namespace.

A key is given as the publisher's `.pub` file or as its 64 hexadecimal digits, as error messages
write it. The store itself is `helios.core.trust`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from helios.core.trust import TrustedPublisher

trust = typer.Typer(
    help="The publishers whose cores you take.", no_args_is_help=True, add_completion=False
)

Key = Annotated[
    str, typer.Argument(help="Public key file (PEM), or its 64 hex digits.", show_default=False)
]
Namespace = Annotated[
    str, typer.Option(help="The namespace that the key signs for, exactly.", show_default=False)
]


@trust.command()
def add(key: Key, namespace: Namespace) -> None:
    """Trust a key for one namespace."""
    from helios.core.trust import TrustStore

    publisher, store = _publisher(key, namespace), TrustStore()
    added = store.add(publisher)
    state = "trusted now" if added else "was trusted already"
    print(f"{publisher.key.hex()} {state} for {namespace!r} ({store.path})")


@trust.command(name="list")
def list_publishers() -> None:
    """Print every trusted key and its namespace."""
    from helios.core.trust import TrustStore
    from helios.wording import show_name

    store = TrustStore()
    publishers = sorted(store.publishers())
    for publisher in publishers:
        print(f"{publisher.key.hex()} {show_name(publisher.namespace)}")
    if not publishers:
        print(f"nobody is trusted ({store.path})")


@trust.command()
def remove(key: Key, namespace: Namespace) -> None:
    """Trust a key for a namespace no longer."""
    from helios.core.trust import TrustStore
    from helios.errors import HeliosError

    publisher, store = _publisher(key, namespace), TrustStore()
    if not store.remove(publisher):
        raise HeliosError(
            f"{publisher.key.hex()} wasn't trusted for {namespace!r}",
            where=str(store.path),
            remedy="`helios trust list` shows who is",
        )
    print(f"{publisher.key.hex()} no longer trusted for {namespace!r} ({store.path})")


def _publisher(key: str, namespace: str) -> TrustedPublisher:
    """Raises HeliosError where either isn't one."""
    from helios.cli_values import read_public_key
    from helios.core.trust import TrustedPublisher, parse_key
    from helios.errors import HeliosError

    try:
        namespace.encode()
    except UnicodeEncodeError as error:
        raise HeliosError("is no UTF-8", where="--namespace") from error
    if not namespace:
        raise HeliosError(
            "is empty", where="--namespace", remedy="`helios inspect CORE` shows a core's"
        )
    return TrustedPublisher(namespace, parse_key(key) or read_public_key(Path(key)))
