"""What hostile bytes are given to. A target returns, or raises something that nobody expected.

Refusals are HeliosErrors; whatever else leaves a target is a finding, and so is a broken promise
(a wrong length, a path outside, an altered envelope that passes), which is asserted. The cores
that the tests store are the starting point: signed content is altered and signed again, so that
what lies behind the signature is reached.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import ssl
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpcore
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError, Message

from helios import contract as contracts
from helios.contract.json_form import from_json
from helios.core import OpenedCore, ResourceKind, open_core
from helios.core import format as core_format
from helios.core.addresses import Endpoints
from helios.core.envelope import read_envelope
from helios.core.frames import decode_frame
from helios.core.locations import Locations
from helios.core.mirror import MirrorClient, Patience
from helios.core.resources import FrameResource, SealedResource
from helios.core.sealed import chunk_associated_data, chunk_nonce, open_sealed
from helios.errors import HeliosError
from helios.frontend.bootstrap import assemble
from helios.frontend.prepare import GenerationOptions
from helios.runtime.capacities import Capacities
from helios.runtime.device import DeviceOptions
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import check_oracle, greedy_replay
from helios.schema import contract_pb2, core_pb2, execution_pb2

STORED: Final = Path(__file__).parents[1] / "tests" / "data" / "cores"
NAMESPACE: Final = "tests"
KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC_KEY: Final = KEY.public_key().public_bytes_raw()
_BLOCK_NBYTES: Final = 128 << 10
_CACHE_NBYTES: Final = 1 << 20


@dataclass(frozen=True)
class Target:
    """`run` takes arbitrary bytes; `seeds` gives good ones. `message` is what they parse as, for
    mutations by structure, or None."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    message: type[Message] | None = None


@cache
def scratch() -> Path:
    """A folder for this process."""
    folder = tempfile.TemporaryDirectory(prefix="helios-fuzz-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: Final[list[tempfile.TemporaryDirectory[str]]] = []  # deleted when the process ends


@cache
def stored(name: str) -> OpenedCore:
    """A stored core, open."""
    described = json.loads((STORED / f"{name}.json").read_text())
    key = bytes.fromhex(described["core_key"]) if described["core_key"] else None
    return open_core(STORED / name, accept=NAMESPACE, publisher_key=PUBLIC_KEY, core_key=key)


def stored_envelope(name: str) -> core_pb2.SignedEnvelope:
    """A stored core's envelope."""
    content = (STORED / name / core_format.ENVELOPE_FILE).read_bytes()
    return core_pb2.SignedEnvelope.FromString(content)


# ---------------------------------------------------------------- contract and manifest


def run_contract(data: bytes) -> None:
    """A serving contract, from the wire and, where that works, through its JSON form."""
    message = _parsed(contract_pb2.ServingContract, data)
    if message is not None:
        with suppress(HeliosError):
            contracts.decode(message)


def run_contract_json(data: bytes) -> None:
    """The JSON form of a contract."""
    with suppress(HeliosError):
        contracts.decode(from_json(data.decode("utf-8", "surrogateescape")))


def run_manifest(data: bytes) -> None:
    """An execution manifest, alone and against a good contract."""
    message = _parsed(execution_pb2.ExecutionManifest, data)
    if message is not None:
        with suppress(HeliosError):
            check_manifest(decode_manifest(message), stored("payload-2").contract)


def run_programs(data: bytes) -> None:
    """A manifest that passes every check is loaded and executed by the native library: nothing
    that it says may make a kernel read or write outside of its buffers, or never end."""
    message = _parsed(execution_pb2.ExecutionManifest, data)
    if message is None:
        return
    with suppress(HeliosError):
        runtime = ModelRuntime.from_parts(
            stored("payload-2").contract,
            message,
            {"weights.cpu": _weights()},
            target="cpu",
            options=DeviceOptions(threads=1),
            capacities=Capacities(cache_nbytes=_CACHE_NBYTES),
        )
        try:
            greedy_replay(runtime, [5, 260, 17], 2)
        finally:
            runtime.close()


@cache
def _weights() -> memoryview:
    return stored("payload-2").map_weights("weights.cpu").content


def run_oracle(data: bytes) -> None:
    """An oracle, replayed."""
    message = _parsed(core_pb2.Oracle, data)
    if message is not None:
        with suppress(HeliosError):
            check_oracle(_runtime(), message)


@cache
def _runtime() -> ModelRuntime:
    return ModelRuntime.load(
        stored("payload-2"),
        options=DeviceOptions(threads=1),
        capacities=Capacities(request_slots=1),
    )


# ---------------------------------------------------------------- envelope and signed content


def run_envelope(data: bytes) -> None:
    """A file in the place of `core.pb`: whatever passes was signed by the key that it names."""
    path = scratch() / "envelope.pb"
    path.write_bytes(data)
    try:
        verified = read_envelope(path, PUBLIC_KEY)
    except HeliosError:
        return
    signed = {hashlib.sha256(envelope.body or envelope.index).hexdigest() for envelope in _signed()}
    assert verified.digest in signed, "an altered envelope passed"


@cache
def _signed() -> list[core_pb2.SignedEnvelope]:
    return [stored_envelope(name) for name in ("payload-2", "index-6", "index-4")]


def run_body(data: bytes) -> None:
    """A payload core's body, signed, over the files of a good core."""
    signature = KEY.sign(core_format.SIGNATURE_DOMAIN + data)
    _open_all(
        "payload-2", core_pb2.SignedEnvelope(body=data, public_key=PUBLIC_KEY, signature=signature)
    )


def run_index(data: bytes) -> None:
    """A logical-resource core's index, version 6, signed, over the files of a good core."""
    _open_index("index-6", data)


def run_sealed_index(data: bytes) -> None:
    """A logical-resource core's index, version 4, signed, over the files of a good core."""
    _open_index("index-4", data)


def _open_index(name: str, data: bytes) -> None:
    signature = KEY.sign(core_format.INDEX_SIGNATURE_DOMAIN + data)
    _open_all(name, core_pb2.SignedEnvelope(index=data, public_key=PUBLIC_KEY, signature=signature))


def _open_all(name: str, envelope: core_pb2.SignedEnvelope) -> None:
    """Opens a core and reads everything in it. What comes out has its signed length."""
    folder = _copy_of(name)
    (folder / core_format.ENVELOPE_FILE).write_bytes(envelope.SerializeToString())
    described = json.loads((STORED / f"{name}.json").read_text())
    key = bytes.fromhex(described["core_key"]) if described["core_key"] else None
    try:
        core = open_core(folder, accept=NAMESPACE, publisher_key=PUBLIC_KEY, core_key=key)
    except HeliosError:
        return
    for resource in core.decoded.executables.values():
        with suppress(HeliosError):
            assert len(core.read_resource(resource.id, resource.kind)) == resource.decoded_nbytes
    for weights in core.decoded.weights.values():
        with suppress(HeliosError):
            core.map_weights(weights.id).close()


@cache
def _copy_of(name: str) -> Path:
    return Path(shutil.copytree(STORED / name, scratch() / name))


# ---------------------------------------------------------------- stored bytes


def run_frame(data: bytes) -> None:
    """Signed bytes that claim to be a frame. Four bytes give the signed length, one the size of
    the pieces that they arrive in."""
    if len(data) < 6:
        return
    decoded_nbytes = int.from_bytes(data[:4], "little") % (4 << 20)
    piece, stored_bytes = 1 + data[4] * 3, data[5:]
    resource = FrameResource(
        id="r",
        kind=ResourceKind.MODULE,
        stored_nbytes=len(stored_bytes),
        stored_sha256=hashlib.sha256(stored_bytes).digest(),
        decoded_nbytes=decoded_nbytes,
        chunk_sha256=tuple(core_format.chunk_digests(stored_bytes)),
    )
    pieces = [stored_bytes[at : at + piece] for at in range(0, len(stored_bytes), piece)]
    total = 0
    try:
        for part in decode_frame(resource, pieces):
            total += len(part)
            assert len(part) <= _BLOCK_NBYTES, "a piece larger than a block"
            assert total <= decoded_nbytes, "more than the signed length"
    except HeliosError:
        return
    assert total == decoded_nbytes, "accepted with another length"


def run_sealed(data: bytes) -> None:
    """Signed bytes that claim to be sealed chunks: only what was sealed in its place opens."""
    if len(data) < core_format.TAG_NBYTES:
        return
    resource = _sealed_resource(data)
    path = scratch() / "sealed"
    path.write_bytes(data)
    output = bytearray(resource.decoded_nbytes)
    try:
        open_sealed(path, resource, _SEALING_KEY, memoryview(output))
    except HeliosError:
        return
    assert seal(bytes(output)) == data, "a forged chunk opened"


_SEALING_KEY: Final = bytes(range(100, 132))


def _sealed_resource(data: bytes) -> SealedResource:
    digests = tuple(core_format.chunk_digests(data))
    decoded = len(data) - core_format.TAG_NBYTES * len(digests)
    return SealedResource("r", ResourceKind.MODULE, decoded, bytes(range(8)), digests)


def seal(content: bytes) -> bytes:
    """One sealed chunk, as the target expects it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    resource = _sealed_resource(content + bytes(core_format.TAG_NBYTES))
    nonce, bound = chunk_nonce(resource, 0), chunk_associated_data(resource, 0)
    return AESGCM(_SEALING_KEY).encrypt(nonce, content, bound)


def run_locations(data: bytes) -> None:
    """A location set: nothing outside of the core's folder is ever a candidate."""
    folder = _copy_of("payload-2")
    (folder / core_format.LOCATIONS_FILE).write_bytes(data)
    locations = Locations(folder)
    for resource in stored("payload-2").decoded.executables.values():
        for candidate in locations.candidates(resource.id, resource.content_name):
            if candidate.path is not None:
                inside = os.path.realpath(candidate.path).startswith(f"{folder.resolve()}/")
                assert inside, "a location outside of the folder"


def run_mirror(data: bytes) -> None:
    """The first line is a mirror's URL, the rest what the mirror answers to every request."""
    url, _, answer = data.partition(b"\n")
    found: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        found.append(host)
        return [_PRIVATE_ADDRESS if host.startswith("private") else _PUBLIC_ADDRESS]

    client = _client()
    client._endpoints = Endpoints(look_up)
    client._pool = httpcore.ConnectionPool(network_backend=_Answering(answer))
    try:
        content = client.read_range(url.decode("utf-8", "replace"), 16, _RANGE_NBYTES, 4096)
    except HeliosError:
        return
    finally:
        client._pool.close()
    assert len(content) == _RANGE_NBYTES, "another length than the one asked for"
    assert not any(host.startswith("private") for host in found), "led into a private network"


@cache
def _client() -> MirrorClient:
    """Made once. No certificate is looked at: the network here has none."""
    tls = ssl.create_default_context()
    return MirrorClient(Endpoints(), Patience(redirects=3), tls, allow_private=False)


_RANGE_NBYTES: Final = 8
_PUBLIC_ADDRESS: Final = "93.184.216.34"
_PRIVATE_ADDRESS: Final = "10.0.0.1"


class _Answering(httpcore.MockBackend):
    """A network in which everybody always gives the same answer."""

    def __init__(self, answer: bytes) -> None:
        super().__init__([])
        self._answer = answer

    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        return httpcore.MockStream([self._answer])


def run_tokenizer(data: bytes) -> None:
    """A tokenizer, and a prompt through it."""
    with suppress(HeliosError):
        frontend = assemble(stored("payload-2").contract, data, None)
        frontend.preparer.prepare_completion("the sea ", GenerationOptions(max_tokens=1))


def run_template(data: bytes) -> None:
    """A chat template, and a conversation through it."""
    text = data.decode("utf-8", "replace")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "the sea "}]
    with suppress(HeliosError):
        frontend = assemble(stored("payload-2").contract, _tokenizer(), text)
        frontend.preparer.prepare_chat(messages, GenerationOptions(max_tokens=1))


@cache
def _tokenizer() -> bytes:
    return _resource("payload-2", "tokenizer")


# ---------------------------------------------------------------- the table


def _parsed(kind: type[Any], data: bytes) -> Any:
    """The message, or None where the bytes are none: Protobuf's own refusal."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return None


def _resource(name: str, resource: str) -> bytes:
    core = stored(name)
    return core.read_resource(resource, core.decoded.executables[resource].kind)


def _each(*names: str) -> Callable[[Callable[[str], bytes]], Callable[[], list[bytes]]]:
    return lambda read: lambda: [read(name) for name in names]


_PAYLOADS: Final = _each("payload-2", "payload-2-int8", "payload-2-int4")


def _frames() -> list[bytes]:
    """Small contents compressed in several ways, with the target's five bytes before them."""
    import zstandard

    contents = [b"", b"a" * 70, bytes(range(256)) * 5, bytes(300_000)]
    seeds = []
    for content in contents:
        for checksum in (False, True):
            frame = zstandard.ZstdCompressor(level=3, write_checksum=checksum).compress(content)
            seeds.append(len(content).to_bytes(4, "little") + b"\x08" + frame)
    return seeds


def _json_contract(name: str) -> bytes:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(stored(name).deployment.contract, indent=None).encode()


def _manifests() -> list[bytes]:
    return [_resource("payload-2", "manifest.cpu"), _resource("payload-2-int8", "manifest.cpu")]


def _answers() -> list[bytes]:
    head = b"http://mirror/f\nHTTP/1.1 "
    good = b"206 Partial Content\r\nContent-Range: bytes 16-23/4096\r\nContent-Length: 8\r\n\r\n"
    return [
        head + good + b"01234567",
        head.replace(b"http:", b"https:") + good.replace(b"/4096", b"/*") + b"01234567",
        head + b"302 Found\r\nLocation: https://private/x\r\n\r\n",
        head + b"200 OK\r\nContent-Length: 4096\r\n\r\n",
        head + b"206 P\r\nContent-Range: bytes 16-23/4096\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"8\r\n01234567\r\n0\r\n\r\n",
        head + b"503 Busy\r\nRetry-After: 5\r\n\r\n",
        b"http://10.0.0.1:1/f\nHTTP/1.1 404 Not Found\r\n\r\n",
    ]


def _templates() -> list[bytes]:
    return [
        _resource("payload-2", "template"),
        b"{% for m in messages %}{{ m['role'] | upper }}: {{ m.content | trim }}{% endfor %}",
        b"{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}",
        b"{% set x = namespace(n=0) %}{% for i in range(20) %}{% set x.n = x.n + i %}{% endfor %}"
        b"{{ x.n }}{{ raise_exception('no') if x.n > 1000 }}{{ messages | tojson }}",
    ]


TARGETS: Final[Mapping[str, Target]] = {
    "envelope": Target(
        run_envelope,
        _each("payload-2", "index-6", "index-4")(
            lambda name: (STORED / name / core_format.ENVELOPE_FILE).read_bytes()
        ),
        core_pb2.SignedEnvelope,
    ),
    "body": Target(
        run_body, _each("payload-2")(lambda n: stored_envelope(n).body), core_pb2.CoreBody
    ),
    "index": Target(
        run_index, _each("index-6")(lambda n: stored_envelope(n).index), core_pb2.ProtectedIndex
    ),
    "sealed-index": Target(
        run_sealed_index,
        _each("index-4")(lambda n: stored_envelope(n).index),
        core_pb2.ProtectedIndex,
    ),
    "frame": Target(run_frame, _frames),
    "sealed": Target(run_sealed, lambda: [seal(b""), seal(b"content"), seal(bytes(1000))]),
    "locations": Target(
        run_locations,
        _PAYLOADS(lambda name: (STORED / name / core_format.LOCATIONS_FILE).read_bytes()),
        core_pb2.LocationSet,
    ),
    "mirror": Target(run_mirror, _answers),
    "contract": Target(
        run_contract,
        _PAYLOADS(lambda name: stored(name).deployment.contract.SerializeToString()),
        contract_pb2.ServingContract,
    ),
    "contract-json": Target(run_contract_json, _PAYLOADS(_json_contract)),
    "manifest": Target(run_manifest, _manifests, execution_pb2.ExecutionManifest),
    "programs": Target(run_programs, lambda: _manifests()[:1], execution_pb2.ExecutionManifest),
    "tokenizer": Target(run_tokenizer, lambda: [_tokenizer()]),
    "template": Target(run_template, _templates),
    "oracle": Target(
        run_oracle,
        lambda: [
            _resource("payload-2", "oracle"),
            core_pb2.Oracle(
                logprob_tolerance=0.25,
                cases=[core_pb2.OracleCase(prompt_tokens=[1, 2], expected_tokens=[3])],
            ).SerializeToString(),
        ],
        core_pb2.Oracle,
    ),
}
