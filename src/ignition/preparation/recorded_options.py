"""What a core says it was prepared with: the options of its rebuild manifest, read back.

An option that Ignition learnt after rebuild manifests of this version were first written isn't in
the older ones. It then had the effect that it has today when nobody gives it: that default is
written down here, so an old core and a new one are held against each other by what was done, not
by what was recorded. `rebuild` and `comparison` are the callers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from helios.core.body import decode_body
from helios.core.envelope import VerifiedEnvelope
from helios.errors import ContractError, CoreError
from helios.schema import core_pb2
from ignition.capture.target import named
from ignition.preparation.chat_syntax import NONE, REASONING, TOOLS
from ignition.preparation.export import Carrier
from ignition.preparation.options import (
    OPTIONAL_PROGRAMS,
    ORACLE_OFF,
    SYNTAXES,
    TEMPLATE_FAMILY,
    TEMPLATE_TEXT,
    TEMPLATE_WORDS,
    TUNING_ON,
    Options,
)
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.sampling import parse as parse_sampling
from ignition.preparation.serving import GENERATOR, REBUILD_VERSION
from ignition.preparation.template_choice import TemplateOptions, check

_TUNING_OFF: Final = "off"
_ORACLE_ON: Final = "on"
# Recorded by every Ignition that writes rebuild manifests of this version.
_ALWAYS: Final = frozenset({"storage", "target", "max_active", "prefill", "decode", "max_context"})
# Learnt later, with the text that stands for their absence.
_DEFAULTS: Final[Mapping[str, str]] = {
    "sampling": "",
    "tuning": _TUNING_OFF,
    "oracle": _ORACLE_ON,
    **dict.fromkeys(OPTIONAL_PROGRAMS, ""),
    **dict.fromkeys(SYNTAXES, NONE),
    TEMPLATE_TEXT: "",
    TEMPLATE_FAMILY: NONE,
    TEMPLATE_WORDS: "",
}


def completed(options: Mapping[str, str]) -> dict[str, str]:
    """Recorded options with the defaults of those that weren't recorded."""
    return {**_DEFAULTS, **options}


def recorded_options(envelope: VerifiedEnvelope, where: str) -> Options:
    """What the core was prepared with. Raises CoreError where it doesn't say, or says it in a way
    that this version doesn't know."""
    decoded = decode_body(envelope.body)
    message = decoded.deployment
    if not message.HasField("rebuild"):
        raise CoreError("has no rebuild manifest", where=where, remedy="It can't be rebuilt")
    manifest = message.rebuild
    if manifest.version != REBUILD_VERSION:
        raise CoreError(
            f"rebuild manifest version {manifest.version} is not supported",
            where=where,
            remedy=f"This Ignition reads version {REBUILD_VERSION}",
        )
    _check_names(manifest, where)
    payload = isinstance(envelope.body, core_pb2.CoreBody)
    return _options(decoded, manifest, Carrier.PAYLOAD if payload else Carrier.LOGICAL, where)


def _check_names(manifest: core_pb2.RebuildManifest, where: str) -> None:
    missing = sorted(_ALWAYS - manifest.options.keys())
    if missing:
        raise CoreError(
            f"its rebuild manifest doesn't record: {', '.join(missing)}",
            where=where,
            remedy="It can't be rebuilt",
        )
    unknown = sorted(manifest.options.keys() - _ALWAYS - _DEFAULTS.keys())
    if unknown:
        maker = dict(manifest.tools).get(GENERATOR, "the Ignition that made it")
        raise CoreError(
            "its rebuild manifest records options that this Ignition doesn't know:"
            f" {', '.join(unknown)}",
            where=where,
            remedy=f"Rebuild it with {maker} or a newer one",
        )


def _options(decoded: Any, manifest: Any, carrier: Carrier, where: str) -> Options:
    contract, texts = decoded.deployment.contract, completed(manifest.options)
    try:
        return Options(
            namespace=decoded.namespace,
            served_id=contract.served_id,
            aliases=tuple(contract.aliases),
            licence_terms=decoded.licence_terms,
            recipe=manifest.recipe,
            storage=WeightStorage(texts["storage"]),
            target=named(texts["target"]),
            carrier=carrier,
            max_active=int(texts["max_active"]),
            prefill=_capacities(texts["prefill"]),
            decode=_capacities(texts["decode"]),
            max_context=int(texts["max_context"]),
            sampling=parse_sampling(texts["sampling"]),
            tuning=_is("tuning", texts["tuning"], TUNING_ON, _TUNING_OFF),
            oracle=_is("oracle", texts["oracle"], _ORACLE_ON, ORACLE_OFF),
            mixed=_capacities(texts["mixed"]),
            scored_prefill=_capacities(texts["scored_prefill"]),
            restore=_capacities(texts["restore"]),
            tools=_syntax(texts["tools"], TOOLS),
            reasoning=_syntax(texts["reasoning"], REASONING),
            template=_template(texts),
        )
    except (ValueError, ContractError) as error:
        raise CoreError(f"its rebuild manifest is damaged ({error})", where=where) from None


def _syntax(name: str, known: Iterable[str]) -> str:
    if name not in known:
        raise ValueError(f"there is no syntax {name!r}")
    return name


def _template(texts: Mapping[str, str]) -> TemplateOptions:
    """An empty template of a caller's is one that wasn't given."""
    template = TemplateOptions(
        texts[TEMPLATE_TEXT] or None, texts[TEMPLATE_FAMILY], texts[TEMPLATE_WORDS]
    )
    check(template)
    return template


def _is(name: str, text: str, on: str, off: str) -> bool:
    if text not in (on, off):
        raise ValueError(f"{name} is {text!r}")
    return text == on


def _capacities(text: str) -> tuple[int, ...]:
    """A list; of programs that the core doesn't say it has, the empty one."""
    return tuple(int(part) for part in text.split(",")) if text else ()
