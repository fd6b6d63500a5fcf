"""HTTPS: certificates made here, clients that verify them, and files that can't be used."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import openai
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helios.errors import HeliosError
from helios.server.options import HttpOptions, LimitOptions, TlsOptions
from helios.server.options.tls import tls_context, tls_options
from tests.server.real import run_cli, server_process
from tests.server.scripted import running_server, says

PASSWORD = b"a password"
LOCAL = ipaddress.ip_address("127.0.0.1")
BODY = {"model": "sample", "prompt": "hello"}


@dataclass(frozen=True)
class Authority:
    """Signs certificates; its own lies in `path`."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    path: Path


def _certificate(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: Authority | None
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(LOCAL)]), critical=False)
    )
    return builder.sign(key if issuer is None else issuer.key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _authority(folder: Path, name: str) -> Authority:
    authority = Authority(
        _name(name), ec.generate_private_key(ec.SECP256R1()), folder / f"{name}.pem"
    )
    made = _certificate(authority.name, authority.key, None)
    authority.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return authority


def _files(folder: Path, name: str, authority: Authority, password: bytes | None) -> TlsOptions:
    """A certificate and its key, in files."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(_name(name), key, authority)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    certificate, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    return TlsOptions(str(certificate), str(key_path))


@dataclass(frozen=True)
class Files:
    """What the tests share."""

    authority: Authority
    server: TlsOptions
    encrypted: TlsOptions
    password: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    authority = _authority(folder, "authority")
    password = folder / "password"
    password.write_bytes(PASSWORD + b"\r\nmore\n")
    encrypted = _files(folder, "encrypted", authority, PASSWORD)
    return Files(
        authority,
        _files(folder, "server", authority, None),
        replace(encrypted, key_password_file=str(password)),
        password,
    )


def _trusting(files: Files) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.authority.path)


@pytest.mark.parametrize("encrypted", [False, True])
def test_clients_that_verify_are_answered(files: Files, encrypted: bool) -> None:
    options = HttpOptions(tls=files.encrypted if encrypted else files.server)
    with running_server(says("hello there"), options=options) as server:
        url = server.url.replace("http:", "https:")
        with httpx.Client(base_url=url, verify=_trusting(files), timeout=60) as client:
            assert client.get("/ready").status_code == 200
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none", http_client=client) as sdk:
                stream = sdk.completions.create(model="sample", prompt="hello", stream=True)
                assert "".join(chunk.choices[0].text for chunk in stream) == "hello there"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(url + "/ready")
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url + "/ready")  # no TLS at all


def test_chat_says_how_to_trust_an_authority_that_it_does_not_know(files: Files) -> None:
    with running_server(says("hello"), options=HttpOptions(tls=files.server)) as server:
        url = server.url.replace("http://", "https://")
        ended = run_cli("chat", "--server", url, "--message", "x")
    assert ended.returncode == 2
    assert "SSL_CERT_FILE" in ended.stderr


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_old_versions_are_refused(files: Files) -> None:
    with running_server(says("hello"), options=HttpOptions(tls=files.server)) as server:
        url = httpx.URL(server.url)
        old = _trusting(files)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with (
            socket.create_connection((url.host, url.port)) as connection,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            old.wrap_socket(connection, server_hostname="127.0.0.1")
        new = _trusting(files)
        with (
            socket.create_connection((url.host, url.port)) as connection,
            new.wrap_socket(connection, server_hostname="127.0.0.1") as wrapped,
        ):
            assert wrapped.version() in ("TLSv1.2", "TLSv1.3")


def test_a_handshake_that_never_comes_is_dropped(files: Files) -> None:
    limits = LimitOptions(head_timeout_s=0.1)
    options = HttpOptions(tls=files.server, limits=limits)
    with running_server(says("hello"), options=options) as server:
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port), timeout=60) as connection:
            connection.sendall(b"\x16\x03\x01\x02")
            assert connection.recv(100) == b""


def test_a_long_stream_arrives_whole_over_tls(files: Files) -> None:
    text = "many words " * 2000
    with running_server(says(text), options=HttpOptions(tls=files.server)) as server:
        url = server.url.replace("http:", "https:")
        with httpx.Client(base_url=url, verify=_trusting(files), timeout=60) as client:
            body = BODY | {"stream": True}
            received = client.post("/v1/completions", json=body)
        assert received.text.endswith("data: [DONE]\n\n")


def test_clients_need_a_certificate_where_that_is_asked_for(files: Files, tmp_path: Path) -> None:
    clients = _authority(tmp_path, "clients")
    one = _files(tmp_path, "client", clients, None)
    stranger = _files(tmp_path, "stranger", files.authority, None)
    tls = replace(files.server, client_ca=str(clients.path))
    with running_server(says("hello"), options=HttpOptions(tls=tls)) as server:
        url = server.url.replace("http:", "https:") + "/ready"
        known = _trusting(files)
        known.load_cert_chain(one.certificate, one.key)
        assert httpx.get(url, verify=known).status_code == 200
        unknown = _trusting(files)
        unknown.load_cert_chain(stranger.certificate, stranger.key)
        for context in (unknown, _trusting(files)):
            with pytest.raises(httpx.HTTPError):
                httpx.get(url, verify=context)
        assert httpx.get(url, verify=known).status_code == 200


# ---------------------------------------------------------------- files


def _refused(options: TlsOptions) -> HeliosError:
    with pytest.raises(HeliosError) as refused:
        tls_context(options)
    assert refused.value.remedy
    assert PASSWORD.decode() not in str(refused.value)
    assert "BEGIN" not in refused.value.what
    return refused.value


def test_each_file_that_cannot_be_used_is_named(files: Files, tmp_path: Path) -> None:
    good, encrypted = files.server, files.encrypted
    absent, nonsense = str(tmp_path / "absent"), tmp_path / "nonsense"
    nonsense.write_text("-----BEGIN NOTHING-----")
    wrong = tmp_path / "wrong"
    wrong.write_text("another password")
    odd = str(nonsense)
    cases = [
        (replace(good, certificate=absent), absent, "--tls-cert", "can't be read"),
        (replace(good, certificate=str(tmp_path)), str(tmp_path), "--tls-cert", "can't be read"),
        (replace(good, certificate=odd), odd, "--tls-cert", "no certificate"),
        (replace(good, certificate=good.key), good.key, "--tls-cert", "no certificate"),
        (replace(good, key=absent), absent, "--tls-key", "can't be read"),
        (replace(good, key=odd), odd, "--tls-key", "no private key"),
        (replace(good, key=good.certificate), good.certificate, "--tls-key", "no private key"),
        (replace(good, key=encrypted.key, certificate=encrypted.certificate), encrypted.key,
         "--tls-key", "is encrypted"),
        (replace(encrypted, key_password_file=str(wrong)), encrypted.key, "--tls-key",
         "isn't opened by the password"),
        (replace(encrypted, key_password_file=absent), absent, "--tls-key-password-file",
         "can't be read"),
        (replace(good, key_password_file=str(files.password)), good.key, "--tls-key",
         "isn't encrypted"),
        (replace(encrypted, certificate=good.certificate), encrypted.key, "--tls-key",
         "another certificate"),
        (replace(good, client_ca=absent), absent, "--tls-client-ca", "can't be read"),
        (replace(good, client_ca=odd), odd, "--tls-client-ca", "no certificate"),
    ]  # fmt: skip
    for options, path, option, what in cases:
        error = _refused(options)
        assert error.where == f"{path} ({option})"
        assert what in error.what


def test_a_part_of_what_is_needed_is_refused() -> None:
    assert tls_options(None, None, None, None) is None
    path = Path("x")
    for given, where in (
        ((path, None, None, None), "--tls-cert"),
        ((None, path, None, None), "--tls-key"),
        ((None, None, path, None), "--tls-key-password-file"),
        ((path, None, None, path), "--tls-cert"),
        ((None, None, None, path), "--tls-client-ca"),
    ):
        with pytest.raises(HeliosError, match="is missing beside it") as refused:
            tls_options(*given)
        assert refused.value.where == where


def test_the_command_says_https_and_refuses_files_before_it_loads(
    core_folder: Path, files: Files
) -> None:
    tls = ("--tls-cert", files.server.certificate, "--tls-key", files.server.key)
    with server_process(core_folder, "--threads", "1", *tls) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert httpx.get(server.url + "/ready", verify=_trusting(files)).status_code == 200
    # The core isn't looked at.
    ended = run_cli("serve", "no-core", "--accept", "x", *tls[:3], files.server.certificate)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "(--tls-key): has no private key in PEM. Give a file with" in ended.stderr
