"""What hostile bytes are given to. A target accepts, refuses, or raises what nobody expected.

Refusals are HeliosErrors; whatever else leaves a target is a finding, and so is a broken promise
(a wrong length, a path outside, an altered envelope that passes), which is asserted. The cores
that the tests store are the starting point: signed content is altered and signed again, so that
what lies behind the signature is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from fuzz import contents, declarations, signed, words
from fuzz.stored import STORED, NoInput, stored, stored_envelope, stored_resource
from helios.core import format as core_format
from helios.errors import HeliosError
from helios.schema import contract_pb2, core_pb2, execution_pb2


@dataclass(frozen=True)
class Target:
    """`run` takes arbitrary bytes and lets refusals out; `seeds` gives good ones. `message` is what
    they parse as, or they are `json`: for mutations by structure. `words` are those of their
    language."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    message: type[Message] | None = None
    json: bool = False
    words: tuple[str, ...] = ()

    def accepts(self, data: bytes) -> bool:
        """Whether the bytes were accepted: False is a refusal, all that it raises a finding."""
        try:
            self.run(data)
        except (HeliosError, NoInput):
            return False
        return True


def _each(*names: str) -> Callable[[Callable[[str], bytes]], Callable[[], list[bytes]]]:
    return lambda read: lambda: [read(name) for name in names]


_PAYLOADS: Final = _each("payload-2", "payload-2-int8", "payload-2-int4")


def _frames() -> list[bytes]:
    """Small contents compressed in several ways, with the target's five bytes before them."""
    import zstandard

    samples = [b"", b"a" * 70, bytes(range(256)) * 5, bytes(300_000)]
    seeds = []
    for content in samples:
        for checksum in (False, True):
            frame = zstandard.ZstdCompressor(level=3, write_checksum=checksum).compress(content)
            seeds.append(len(content).to_bytes(4, "little") + b"\x08" + frame)
    return seeds


def _json_contract(name: str) -> bytes:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(stored(name).deployment.contract, indent=None).encode()


def _manifests() -> list[bytes]:
    return [
        stored_resource("payload-2", "manifest.cpu"),
        stored_resource("payload-2-int8", "manifest.cpu"),
    ]


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
        stored_resource("payload-2", "template"),
        b"{% for m in messages %}{{ m['role'] | upper }}: {{ m.content | trim }}{% endfor %}",
        b"{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}",
        b"{% set x = namespace(n=0) %}{% for i in range(20) %}{% set x.n = x.n + i %}{% endfor %}"
        b"{{ x.n }}{{ raise_exception('no') if x.n > 1000 }}{{ messages | tojson }}",
    ]


TARGETS: Final[Mapping[str, Target]] = {
    "envelope": Target(
        signed.run_envelope,
        _each("payload-2", "index-6", "index-4")(
            lambda name: (STORED / name / core_format.ENVELOPE_FILE).read_bytes()
        ),
        core_pb2.SignedEnvelope,
    ),
    "body": Target(
        signed.run_body, _each("payload-2")(lambda n: stored_envelope(n).body), core_pb2.CoreBody
    ),
    "index": Target(
        signed.run_index,
        _each("index-6")(lambda n: stored_envelope(n).index),
        core_pb2.ProtectedIndex,
    ),
    "sealed-index": Target(
        signed.run_sealed_index,
        _each("index-4")(lambda n: stored_envelope(n).index),
        core_pb2.ProtectedIndex,
    ),
    "frame": Target(contents.run_frame, _frames),
    "sealed": Target(
        contents.run_sealed,
        lambda: [contents.seal(b""), contents.seal(b"content"), contents.seal(bytes(1000))],
    ),
    "locations": Target(
        contents.run_locations,
        _PAYLOADS(lambda name: (STORED / name / core_format.LOCATIONS_FILE).read_bytes()),
        core_pb2.LocationSet,
    ),
    "mirror": Target(contents.run_mirror, _answers, words=words.HTTP),
    "contract": Target(
        declarations.run_contract,
        _PAYLOADS(lambda name: stored(name).deployment.contract.SerializeToString()),
        contract_pb2.ServingContract,
    ),
    "contract-json": Target(declarations.run_contract_json, _PAYLOADS(_json_contract), json=True),
    "manifest": Target(declarations.run_manifest, _manifests, execution_pb2.ExecutionManifest),
    "programs": Target(
        declarations.run_programs, lambda: _manifests()[:1], execution_pb2.ExecutionManifest
    ),
    "tokenizer": Target(
        declarations.run_tokenizer, lambda: [stored_resource("payload-2", "tokenizer")], json=True
    ),
    "template": Target(declarations.run_template, _templates, words=words.TEMPLATE),
    "oracle": Target(
        declarations.run_oracle,
        lambda: [
            stored_resource("payload-2", "oracle"),
            core_pb2.Oracle(
                logprob_tolerance=0.25,
                cases=[core_pb2.OracleCase(prompt_tokens=[1, 2], expected_tokens=[3])],
            ).SerializeToString(),
        ],
        core_pb2.Oracle,
    ),
}
