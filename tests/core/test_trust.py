"""Who may have signed a core: the trust store on disk, pinned keys, explicit permission."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.core import open_core
from helios.core.authorize import Trust
from helios.core.trust import TrustedPublisher, TrustStore, default_store, parse_key
from helios.errors import CoreError
from tests.core.sample_core import NAMESPACE, PUBLIC_KEY, write_core

OTHER_KEY = bytes(range(32, 64))


@pytest.fixture(scope="module")
def core_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_core(tmp_path_factory.mktemp("core") / "core")


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "settings" / "trust.json")


def _open(folder: Path, store: TrustStore, **options: object) -> Trust:
    core = open_core(folder, accept=NAMESPACE, trust_store=store, **options)  # type: ignore[arg-type]
    return core.acceptance.trust


@pytest.mark.clause("CORE-9")
def test_an_unknown_publisher_is_refused_with_the_command_to_trust_it(
    core_folder: Path, store: TrustStore
) -> None:
    command = f"helios trust add {PUBLIC_KEY.hex()} --namespace={NAMESPACE}"
    with pytest.raises(CoreError, match="haven't trusted yet") as refused:
        _open(core_folder, store)
    assert f"`{command}`" in str(refused.value)
    assert "--allow-unknown-publisher" in str(refused.value)


@pytest.mark.clause("CORE-9")
def test_a_trusted_pinned_or_explicitly_unknown_publisher_is_taken(
    core_folder: Path, store: TrustStore
) -> None:
    assert _open(core_folder, store, allow_unknown_publisher=True) is Trust.UNKNOWN
    assert _open(core_folder, store, publisher_key=PUBLIC_KEY) is Trust.PINNED
    assert store.publishers() == frozenset()  # neither leaves a trace
    store.add(TrustedPublisher(NAMESPACE, PUBLIC_KEY))
    assert _open(core_folder, store) is Trust.STORE


@pytest.mark.clause("CORE-9")
@pytest.mark.parametrize(
    "namespace", ["tests", "tests/publisher ", "Tests/Publisher", "tests/publisher/x", "tests/*"]
)
def test_a_key_is_trusted_for_its_namespace_alone(
    core_folder: Path, store: TrustStore, namespace: str
) -> None:
    store.add(TrustedPublisher(namespace, PUBLIC_KEY))
    with pytest.raises(CoreError, match=r"which you trust for .* only") as refused:
        _open(core_folder, store)
    assert repr(namespace) in refused.value.what


@pytest.mark.clause("CORE-9")
@pytest.mark.parametrize(
    ("signed", "accepted"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("cafe\u0301", "caf\u00e9"),
        ("stra\u00dfe", "strasse"),
        ("\u212b", "\u00c5"),
        ("a b", "a\u00a0b"),
        ("a", "a\u200b"),
        ("a", " a"),
        ("a", "a\n"),
    ],
)
def test_acceptance_and_trust_know_no_equivalent_spellings(
    tmp_path: Path, store: TrustStore, signed: str, accepted: str
) -> None:
    folder = write_core(tmp_path / "core", lambda b: setattr(b.publisher, "namespace", signed))
    with pytest.raises(CoreError, match="was accepted"):
        open_core(folder, accept=accepted, publisher_key=PUBLIC_KEY)
    store.add(TrustedPublisher(accepted, PUBLIC_KEY))
    with pytest.raises(CoreError, match="which you trust for"):
        open_core(folder, accept=signed, trust_store=store)


def test_names_that_look_alike_are_told_apart(tmp_path: Path, store: TrustStore) -> None:
    name = "d\u0435mo"  # a Cyrillic letter
    folder = write_core(tmp_path / "core", lambda b: setattr(b.publisher, "namespace", name))
    for accepted in ("demo", name):
        with pytest.raises(CoreError) as refused:
            open_core(folder, accept=accepted, trust_store=store)
        assert r"(in ASCII 'd\u0435mo')" in refused.value.what


@pytest.mark.clause("CORE-9")
def test_a_known_name_with_another_key_is_called_out(core_folder: Path, store: TrustStore) -> None:
    store.add(TrustedPublisher(NAMESPACE, OTHER_KEY))
    with pytest.raises(CoreError, match="somebody else may be using the name") as refused:
        _open(core_folder, store)
    assert OTHER_KEY.hex() in refused.value.what


def test_a_namespace_that_cant_be_shown_gets_no_command(tmp_path: Path, store: TrustStore) -> None:
    name = "demo\x1b[2J\n"
    folder = write_core(tmp_path / "core", lambda b: setattr(b.publisher, "namespace", name))
    with pytest.raises(CoreError, match="can't be shown") as refused:
        open_core(folder, accept=name, trust_store=store)
    assert str(refused.value).isprintable()


def test_a_namespace_is_quoted_for_the_shell(tmp_path: Path, store: TrustStore) -> None:
    name = "a b; rm -rf ~ $(x)'"
    folder = write_core(tmp_path / "core", lambda b: setattr(b.publisher, "namespace", name))
    with pytest.raises(CoreError) as refused:
        open_core(folder, accept=name, trust_store=store)
    command = str(refused.value).split("`")[1]
    assert shlex.split(command)[-1] == f"--namespace={name}"


# ------------------------------------------------------------------ the file


def test_what_is_added_is_there_until_removed(store: TrustStore) -> None:
    one, other = TrustedPublisher("a", PUBLIC_KEY), TrustedPublisher("b", PUBLIC_KEY)
    assert store.publishers() == frozenset()
    assert store.add(one)
    assert not store.add(one)
    assert store.add(other)
    assert TrustStore(store.path).publishers() == {one, other}
    assert store.remove(one)
    assert not store.remove(one)
    assert store.publishers() == {other}


def test_the_file_is_the_owners_alone_and_leaves_nothing_behind(store: TrustStore) -> None:
    store.add(TrustedPublisher("a", PUBLIC_KEY))
    store.add(TrustedPublisher("b", PUBLIC_KEY))
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert sorted(p.name for p in store.path.parent.iterdir()) == ["trust.json", "trust.json.lock"]


def test_a_linked_store_stays_linked(store: TrustStore, tmp_path: Path) -> None:
    store.path.parent.mkdir()
    store.path.symlink_to(tmp_path / "elsewhere.json")
    store.add(TrustedPublisher("a", PUBLIC_KEY))
    assert store.path.is_symlink()
    assert (tmp_path / "elsewhere.json").is_file()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_store_that_others_may_write_is_refused(store: TrustStore, mode: int) -> None:
    store.add(TrustedPublisher(NAMESPACE, PUBLIC_KEY))
    store.path.chmod(mode)
    with pytest.raises(CoreError, match=r"trust\.json: can be written by other users.*chmod 600"):
        store.publishers()


def test_a_store_that_nobody_can_look_at_is_refused_and_not_taken_for_an_empty_one(
    tmp_path: Path, core_folder: Path
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, loop / "trust.json", tmp_path / ("x" * 300)):
        store = TrustStore(path)
        for attempt in (
            store.publishers,
            lambda store=store: store.add(TrustedPublisher("a", PUBLIC_KEY)),
            lambda store=store: _open(core_folder, store, allow_unknown_publisher=True),
        ):
            with pytest.raises(CoreError, match=r"can't be (read|changed): "):
                attempt()


GOOD = {"version": 1, "publishers": [{"namespace": "a", "key": "00" * 32}]}
DAMAGED = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"[" * 100_000,
    b'{"version": 1}',
    b'{"version": 2, "publishers": []}',
    b'{"version": 1, "publishers": {"a": 1}}',
    b'{"version": 1, "publishers": [], "more": 1}',
    b'{"version": 1, "publishers": [{"namespace": "a"}]}',
    b'{"version": 1, "publishers": [{"namespace": 1, "key": "' + b"00" * 32 + b'"}]}',
    b'{"version": 1, "publishers": [{"namespace": "a", "key": "00"}]}',
    b'{"version": 1, "publishers": [{"namespace": "", "key": "' + b"00" * 32 + b'"}]}',
    b'{"version": 1, "publishers": [{"namespace": "a", "key": null}]}',
    b" " * ((1 << 20) + 1),
]


@pytest.mark.parametrize("content", DAMAGED, ids=[repr(d[:60]) for d in DAMAGED])
def test_a_damaged_store_is_refused_and_not_taken_for_an_empty_one(
    core_folder: Path, store: TrustStore, content: bytes
) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    store.path.chmod(0o600)
    for attempt in (
        lambda: _open(core_folder, store, allow_unknown_publisher=True),
        lambda: store.add(TrustedPublisher("a", PUBLIC_KEY)),
    ):
        with pytest.raises(CoreError, match=r"trust\.json: is "):
            attempt()
    assert store.path.read_bytes() == content


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_damage_to_the_file_trusts_another_key(store: TrustStore, data: st.DataObject) -> None:
    good = bytearray(json.dumps(GOOD).encode())
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    store.path.parent.mkdir(exist_ok=True)
    store.path.write_bytes(good)
    store.path.chmod(0o600)
    try:
        publishers = store.publishers()
    except CoreError:
        return
    assert all(len(p.key) == 32 and p.namespace for p in publishers)
    assert len(publishers) == 1


def _add(path: Path, number: int) -> None:
    TrustStore(path).add(TrustedPublisher(f"publisher-{number}", PUBLIC_KEY))


def test_processes_that_add_at_the_same_time_lose_nothing(store: TrustStore) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_add, args=(store.path, n)) for n in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert {p.namespace for p in store.publishers()} == {f"publisher-{n}" for n in range(8)}


def test_a_failed_write_leaves_the_store_as_it_was(
    store: TrustStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(TrustedPublisher("a", PUBLIC_KEY))
    before = store.path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CoreError, match=r"can't be changed: No space left.*HELIOS_TRUST"):
        store.add(TrustedPublisher("b", PUBLIC_KEY))
    assert store.path.read_bytes() == before
    assert len(list(store.path.parent.iterdir())) == 2


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HELIOS_TRUST": "/a/b.json", "XDG_CONFIG_HOME": "/c"}, "/a/b.json"),
        ({"XDG_CONFIG_HOME": "/c"}, "/c/helios/trust.json"),
        ({"XDG_CONFIG_HOME": "relative"}, "~/.config/helios/trust.json"),
        ({}, "~/.config/helios/trust.json"),
    ],
)
def test_the_store_lies_where_settings_lie(environment: dict[str, str], expected: str) -> None:
    assert default_store(environment) == Path(expected).expanduser()


@pytest.mark.parametrize(
    "text", ["", "00" * 31, "00" * 33, "zz" * 32, "00 " * 21 + "0", "00" * 31 + " 0"]
)
def test_only_64_hexadecimal_digits_are_a_key(text: str) -> None:
    assert parse_key(text) is None
    assert parse_key(PUBLIC_KEY.hex().upper()) == PUBLIC_KEY
