"""HTTPS: the files of a certificate, and the context that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from helios.dataclass import dataclass
from helios.errors import HeliosError

if TYPE_CHECKING:
    import ssl

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

_CERTIFICATE: Final = "--tls-cert"
_KEY: Final = "--tls-key"
_PASSWORD: Final = "--tls-key-password-file"
_CLIENT_CA: Final = "--tls-client-ca"

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Paths of PEM files: the certificate with what leads to its authority, its private key, a
    file whose first line is the key's password, and the authorities of clients, each of which
    then needs a certificate of theirs."""

    certificate: str
    key: str
    key_password_file: str | None = None
    client_ca: str | None = None


def tls_options(
    certificate: Path | None,
    key: Path | None,
    key_password_file: Path | None,
    client_ca: Path | None,
) -> TlsOptions | None:
    """The options, or None if nothing is said of TLS. Raises HeliosError for a part of what is
    needed."""
    given = {
        _CERTIFICATE: certificate,
        _KEY: key,
        _PASSWORD: key_password_file,
        _CLIENT_CA: client_ca,
    }
    if not any(given.values()):
        return None
    if certificate is None or key is None:
        present = next(option for option, path in given.items() if path)
        missing = _CERTIFICATE if certificate is None else _KEY
        raise HeliosError(
            f"{missing} is missing beside it", where=present, remedy="Give --tls-cert and --tls-key"
        )
    return TlsOptions(
        str(certificate),
        str(key),
        None if key_password_file is None else str(key_password_file),
        None if client_ca is None else str(client_ca),
    )


def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """TLS 1.2 or later with the certificate. Raises HeliosError that names the file at fault and
    what would be right."""
    import ssl

    certificate = _certificates(options.certificate, _CERTIFICATE)[0]
    password = None
    if options.key_password_file is not None:
        password = _read(options.key_password_file, _PASSWORD).split(b"\n")[0].rstrip(b"\r")
    key = _private_key(options, password)
    if key.public_key() != certificate.public_key():
        raise HeliosError(
            "belongs to another certificate than the first one of --tls-cert",
            where=f"{options.key} ({_KEY})",
            remedy="Give the key that the certificate was made for; the server's own certificate"
            " comes first in --tls-cert",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(options.certificate, options.key, password or "")
    except (ssl.SSLError, ValueError) as error:
        raise HeliosError(
            f"isn't taken by OpenSSL ({getattr(error, 'reason', None) or error})",
            where=f"{options.certificate} ({_CERTIFICATE})",
            remedy="Make one with a stronger key or signature",
        ) from error
    if options.client_ca is not None:
        _certificates(options.client_ca, _CLIENT_CA)
        context.load_verify_locations(options.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _certificates(path: str, option: str) -> list[Certificate]:
    from cryptography import x509

    return _parsed(
        x509.load_pem_x509_certificates,
        _read(path, option),
        f"{path} ({option})",
        "has no certificate in PEM",
        "Give a file with -----BEGIN CERTIFICATE-----",
    )


def _private_key(options: TlsOptions, password: bytes | None) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    where = f"{options.key} ({_KEY})"
    content = _read(options.key, _KEY)
    try:
        return load_pem_private_key(content, password)
    except TypeError as error:  # a password is missing, or is one too many
        if password is None:
            raise HeliosError(
                "is encrypted", where=where, remedy=f"Name its password's file with {_PASSWORD}"
            ) from error
        raise HeliosError(
            "isn't encrypted", where=where, remedy=f"Leave out {_PASSWORD}"
        ) from error
    except ValueError as error:
        if password is not None and b"ENCRYPTED" in content:
            raise HeliosError(
                "isn't opened by the password", where=where, remedy=f"Correct {_PASSWORD}"
            ) from error
        raise HeliosError(
            "has no private key in PEM",
            where=where,
            remedy="Give a file with -----BEGIN PRIVATE KEY-----",
        ) from error


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise HeliosError(
            f"can't be read: {error.strerror}",
            where=f"{path} ({option})",
            remedy="Name a file that this user may read",
        ) from error


def _parsed(
    parse: Callable[[bytes], Parsed], content: bytes, where: str, what: str, remedy: str
) -> Parsed:
    try:
        return parse(content)
    except ValueError as error:
        raise HeliosError(what, where=where, remedy=remedy) from error
