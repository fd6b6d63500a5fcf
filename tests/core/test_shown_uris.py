"""What messages and logs show of URIs and of what others say."""

from __future__ import annotations

import logging
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.core.shown_uris import shown_text, shown_uri
from helios.errors import CoreError
from tests.core.mirror_server import MirrorServer, serving
from tests.core.sample_core import write_core
from tests.core.test_mirrors import BY_NAME, TEMPLATE, locate, template, url

SHOWN = [
    ("https://host/a/b", "https://host/a/b"),
    ("https://host:8443/a@b/c", "https://host:8443/a@b/c"),
    ("https://[::1]:1/a@b", "https://[::1]:1/a@b"),
    ("https://user:secret@host/a", "https://…@host/a"),
    ("https://secret@host/a", "https://…@host/a"),
    ("HTTPS://user:sec@ret@host/a@b", "HTTPS://…@host/a@b"),
    ("http://user:sec/ret@host/a", "http://…@host/a"),
    ("http://user:sec?ret@host/a", "http://…@host/a"),
    ("http://user:sec#ret@host/a", "http://…@host/a"),
    ("http:user:secret@host/a", "http:…@host/a"),
    ("http:\\\\user:secret@host/a", "http:\\\\…@host/a"),
    ("http:////user:secret@host/a", "http:////…@host/a"),
    ("user:secret@host/a", "user:…@host/a"),
    ("s3://key:secret@bucket/a", "s3://…@bucket/a"),
    ("file://user:secret@host/a", "file://…@host/a"),
    ("https://host/a?token=secret", "https://host/a?…"),
    ("https://host/a?token=secret&b=user@host", "https://host/a?…"),
    ("https://host?secret", "https://host?…"),
    ("https://host/a#secret", "https://host/a#…"),
    ("https://user:secret@host/a?secret#secret", "https://…@host/a?…"),
    ("file:resources/a@b?c#d", "file:resources/a@b?c#d"),
    ("http://host/\x1b[31m\na\u202eb", "http://host/\\x1b[31m\\na\\u202eb"),
    ("", ""),
]


@pytest.mark.parametrize(("uri", "shown"), SHOWN, ids=[u for u, _ in SHOWN])
def test_a_uri_is_shown_without_its_secrets(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown
    assert "secret" not in shown


# With a slash, `user` would be the host, and what follows a path.
users = st.text(st.characters(exclude_characters="/?#"))


@given(user=users, tail=st.text(alphabet="abc/@:?#"))
def test_no_password_is_ever_shown(user: str, tail: str) -> None:
    assert "hunter2" not in shown_uri(f"http://{user}:hunter2@host/{tail}")


@given(text=st.text(max_size=300))
def test_what_is_shown_is_one_short_line(text: str) -> None:
    shown = shown_text(text, 20)
    assert shown.isprintable()
    assert len(shown) <= 20 * len("\\U0010ffff") + 1


@pytest.fixture
def server() -> Iterator[MirrorServer]:
    with serving(BY_NAME) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_core(tmp_path / "core")
    shutil.rmtree(folder / "resources")
    return folder


REFUSED = [
    "http://user:hunter2@127.0.0.1/x",
    "http://user:hunter2@127.0.0.1:99999/x",
    "http://user:hun/hunter2@127.0.0.1/x",
    "http://user:hunter2/x@127.0.0.1/x",
    "http://user:hunter2\x01@127.0.0.1/x",
    "http://user:hunter2@[::1/x",
    "http:user:hunter2@127.0.0.1/x",
    "ftp://user:hunter2@127.0.0.1/x",
    "file://user:hunter2@127.0.0.1/x",
    "https://127.0.0.1:99999/x?signature=hunter2",
]


@pytest.mark.parametrize("uri", REFUSED)
def test_refused_locations_give_away_no_password(
    folder: Path, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    locate(folder, "template", uri)
    with pytest.raises(CoreError) as refused:
        template(folder)
    told = "".join(traceback.format_exception(refused.value)) + str(refused.value)
    error: BaseException | None = refused.value
    while error is not None:
        told += repr(vars(error))
        error = error.__cause__ or error.__context__
    assert "hunter2" not in told
    assert "hunter2" not in caplog.text
    assert uri.partition(":")[0] in told


@pytest.mark.parametrize("behaviour", ["good", "lies", "missing", "truncates", "broken"])
def test_asked_locations_give_away_no_signed_query(
    folder: Path, server: MirrorServer, behaviour: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.files = {f"{name}?signature=hunter2": content for name, content in BY_NAME.items()}
    locate(folder, "template", url(server, behaviour, "template") + "?signature=hunter2")
    if behaviour == "good":
        assert template(folder) == TEMPLATE
    else:
        with pytest.raises(CoreError, match=r"\?…: ") as refused:
            template(folder)
        assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    assert "hunter2" not in caplog.text
    assert f"from {url(server, behaviour, 'template')}?…" in caplog.text


def test_a_redirect_gives_away_no_password(
    folder: Path, server: MirrorServer, caplog: pytest.LogCaptureFixture
) -> None:
    for target in ("http://user:hunter2@127.0.0.1:1/x", "http://user:hunter2/@127.0.0.1:1/x"):
        locate(folder, "template", f"{server.url}/redirects/{quote(target, safe='')}")
        with pytest.raises(CoreError, match=r"is no URL of a host|redirects to no URL") as refused:
            template(folder)
        # The location itself is the user's, and shown; what it redirects to isn't.
        told = "".join(traceback.format_exception(refused.value))
        assert "hunter2" not in told.replace(quote(target, safe=""), "")


def test_messages_about_mirrors_stay_short(folder: Path) -> None:
    uris = [f"http://127.0.0.2:{number}/{'a' * 60_000}" for number in range(1, 17)]
    locate(folder, "template", *uris)
    with pytest.raises(CoreError, match="private network") as refused:
        template(folder)
    assert len(str(refused.value)) < 16 * 500
