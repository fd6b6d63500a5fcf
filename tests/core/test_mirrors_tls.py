"""Mirrors over https: certificates are checked, and nobody is led down to http."""

from __future__ import annotations

import datetime
import ipaddress
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helios.core.addresses import Endpoints
from helios.errors import CoreError
from tests.core.mirror_server import MirrorServer, serving
from tests.core.sample_core import WEIGHTS, write_core
from tests.core.test_mirrors import BY_NAME, TEMPLATE, local_only, locate, template, url, weights


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate that it signed itself, for 127.0.0.1 and mirror.test."""
    path = tmp_path_factory.mktemp("tls") / "mirror.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mirror.test")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("mirror.test")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[MirrorServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(BY_NAME, tls=context) as running:
        yield running


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the certificate one that this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_core(tmp_path / "core")
    shutil.rmtree(folder / "resources")
    return folder


@pytest.mark.clause("CORE-3")
@pytest.mark.usefixtures("trusted")
def test_a_mirror_over_https_serves(folder: Path, secure: MirrorServer) -> None:
    locate(folder, "weights", url(secure, "good", "weights"))
    assert weights(folder) == WEIGHTS


@pytest.mark.usefixtures("trusted")
def test_the_certificate_is_checked_for_the_name_though_an_address_is_connected_to(
    folder: Path, secure: MirrorServer
) -> None:
    endpoints = Endpoints(look_up=lambda host, port: ["127.0.0.1"], is_public=local_only)
    location = url(secure, "good", "template")
    locate(folder, "template", location.replace("127.0.0.1", "mirror.test"))
    assert template(folder, endpoints=endpoints) == TEMPLATE
    shutil.rmtree(folder.parent / "cache")
    locate(folder, "template", location.replace("127.0.0.1", "other.test"))
    with pytest.raises(CoreError, match="has no valid certificate"):
        template(folder, endpoints=endpoints)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    folder: Path, secure: MirrorServer
) -> None:
    locate(folder, "template", url(secure, "good", "template"))
    with pytest.raises(CoreError, match="has no valid certificate"):
        template(folder)
    assert secure.requests == []


@pytest.mark.clause("CORE-3")
@pytest.mark.usefixtures("trusted")
def test_a_redirect_from_https_to_http_is_refused(folder: Path, secure: MirrorServer) -> None:
    with serving(BY_NAME) as plain:
        target = url(plain, "good", "template")
        locate(folder, "template", f"{secure.url}/redirects/{quote(target, safe='')}")
        with pytest.raises(CoreError, match="redirects from https: to http:"):
            template(folder)
        assert plain.requests == []


@pytest.mark.usefixtures("trusted")
def test_a_redirect_from_http_to_https_is_followed(folder: Path, secure: MirrorServer) -> None:
    with serving(BY_NAME) as plain:
        target = url(secure, "good", "template")
        locate(folder, "template", f"{plain.url}/redirects/{quote(target, safe='')}")
        assert template(folder) == TEMPLATE
