"""What a preparation may choose, and how a core's rebuild manifest says it.

Data and its checks; `prepare` does the work, `rebuild` reads the texts back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helios.core.format import NAMESPACE_LIMIT
from helios.errors import ContractError
from ignition import recipes
from ignition.capture.target import CPU, Target
from ignition.preparation import chat_syntax, template_choice
from ignition.preparation.chat_syntax import ChatSyntax
from ignition.preparation.checkpoints.checkpoint import NO_RECOMMENDATIONS, GenerationDefaults
from ignition.preparation.export import Carrier
from ignition.preparation.extents import (
    Extents,
    default_mixed,
    defaults,
)
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.sampling import text_of as sampling_text
from ignition.preparation.template_choice import BY_CHECKPOINT, TemplateOptions

_STORAGES: Final = {
    False: tuple(storage for storage in WeightStorage if storage is not WeightStorage.FP8),
    True: tuple(storage for storage in WeightStorage if storage is not WeightStorage.INT4),
}
ORACLE_OFF: Final = "off"  # of the rebuild manifest's option "oracle"
TUNING_ON: Final = "on"  # of the rebuild manifest's option "tuning"
# Options of programs that a core may lack; the names are those of `Extents` and `Options`.
OPTIONAL_PROGRAMS: Final = ("mixed", "scored_prefill", "restore")
# Options of syntaxes, of which a core may declare none.
SYNTAXES: Final = ("tools", "reasoning")
# Options of chat templates: a caller's own, a family's, and words in the latter.
TEMPLATE_TEXT: Final = "template_text"
TEMPLATE_FAMILY: Final = "template_family"
TEMPLATE_WORDS: Final = "template_words"


@dataclass(frozen=True)
class Options:
    """What a preparation may choose; None is the default that `extents` resolves."""

    namespace: str
    served_id: str
    aliases: tuple[str, ...] = ()
    licence_terms: str = ""
    recipe: str = "auto"
    storage: WeightStorage = WeightStorage.AS_STORED
    target: Target = CPU
    carrier: Carrier = Carrier.PAYLOAD
    max_active: int | None = None
    prefill: tuple[int, ...] | None = None
    decode: tuple[int, ...] | None = None
    max_context: int | None = None
    sampling: GenerationDefaults = NO_RECOMMENDATIONS
    tuning: bool = False
    mixed: tuple[int, ...] | None = None
    scored_prefill: tuple[int, ...] | None = None
    restore: tuple[int, ...] | None = None
    tools: str = chat_syntax.AUTO
    reasoning: str = chat_syntax.AUTO
    template: TemplateOptions = BY_CHECKPOINT
    oracle: bool = True

    def check(self) -> None:
        """Refuses what no checkpoint could make right, naming the command's option. Raises
        ContractError, or CheckpointError for the recipe."""
        if not self.namespace:
            raise ContractError("is empty", where="--namespace", remedy="Name the publisher")
        if len(self.namespace) > NAMESPACE_LIMIT:
            raise ContractError(
                f"has {len(self.namespace)} characters",
                where="--namespace",
                remedy=f"Give at most {NAMESPACE_LIMIT}",
            )
        names = (self.served_id, *self.aliases)
        if not all(names) or len(set(names)) != len(names):
            raise ContractError(
                f"names must differ and not be empty, got {', '.join(map(repr, names))}",
                where="--served-id, --alias",
                remedy="Give each name once",
            )
        self._check_target()
        recipes.check_name(self.recipe)
        chat_syntax.check_names(self.tools, self.reasoning)
        template_choice.check(self.template)
        # The model's context length is still unknown: any stands in for it.
        self.extents(sys.maxsize)

    def _check_target(self) -> None:
        where = f"of target {self.target.name}"
        storages = _STORAGES[self.target.is_cuda]
        if self.storage not in storages:
            raise ContractError(
                f"{where} there is no {self.storage.value}",
                where="--storage",
                remedy=f"Choose one of {', '.join(s.value for s in storages)}",
            )
        if self.tuning and self.target.is_cuda:
            raise ContractError(
                f"programs {where} have nothing to measure at start-up",
                where="--tuning",
                remedy="Leave it out",
            )

    def extents(self, context_tokens: int) -> Extents:
        """The captured capacities for a model of this context length."""
        if self.max_context is not None and self.max_context > context_tokens:
            raise ContractError(
                f"{self.max_context} tokens are more than the model's {context_tokens}",
                where="--max-context",
                remedy="Choose a smaller context",
            )
        default = defaults(self.target)
        max_active = default.max_active if self.max_active is None else self.max_active
        prefill = default.prefill if self.prefill is None else self.prefill
        decode, mixed, restore = self.decode, self.mixed, self.restore
        if decode is None:
            fitting = {lanes for lanes in default.decode if lanes < max_active}
            decode = tuple(sorted(fitting | {max_active}))
        if mixed is None:
            mixed = default_mixed(default, max_active, prefill)
        scored = self.scored_prefill
        return Extents(
            max_active=max_active,
            prefill=prefill,
            decode=decode,
            max_context_tokens=context_tokens if self.max_context is None else self.max_context,
            mixed=mixed,
            scored_prefill=default.scored_prefill if scored is None else scored,
            restore=(max_active,) if restore is None else restore,
            page_tokens=self.target.page_tokens,
            prefill_lanes_limit=default.prefill_lanes,
        )

    def texts(self, extents: Extents, syntax: ChatSyntax, family: str) -> dict[str, str]:
        """What the same preparation would be asked for, defaults resolved to `extents`, `syntax`
        and the `family` whose template is used."""
        texts = {
            "storage": self.storage.value,
            "target": self.target.name,
            "max_active": str(extents.max_active),
            "prefill": _listed(extents.prefill),
            "decode": _listed(extents.decode),
            "max_context": str(extents.max_context_tokens),
        }
        # Said only where they are given: cores without them say what they always said.
        for name in OPTIONAL_PROGRAMS:
            capacities = getattr(extents, name)
            if capacities:
                texts[name] = _listed(capacities)
        if self.sampling != NO_RECOMMENDATIONS:
            texts["sampling"] = sampling_text(self.sampling)
        if self.tuning:
            texts["tuning"] = TUNING_ON
        if not self.oracle:
            texts["oracle"] = ORACLE_OFF
        for name in SYNTAXES:
            if getattr(syntax, name) != chat_syntax.NONE:
                texts[name] = getattr(syntax, name)
        if self.template.text is not None:
            texts[TEMPLATE_TEXT] = self.template.text
        if family != chat_syntax.NONE:
            texts[TEMPLATE_FAMILY] = family
        if self.template.words:
            texts[TEMPLATE_WORDS] = self.template.words
        return texts


def _listed(capacities: Sequence[int]) -> str:
    return ",".join(map(str, capacities))
