"""Everything that an opened core gives to the frontend, loaded once at start-up.

Tokenizer data and chat template are the only files read; all else comes from the contract. The
server and the in-process engine hold a `Frontend` and make one output pipeline per request.
"""

from __future__ import annotations

from helios.contract.model import FrontendContract, PreparedContract
from helios.core import OpenedCore, ResourceKind
from helios.dataclass import dataclass
from helios.errors import ContractError, CoreError
from helios.frontend.markers import MarkerGuard
from helios.frontend.output import OutputPipeline
from helios.frontend.prepare import PreparedRequest, Preparer, PromptLimits
from helios.frontend.prompts import PromptMaker
from helios.frontend.response.selection import markers
from helios.frontend.responses import ResponseReading
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from helios.runtime.grammar_rules import takes_grammars
from helios.runtime.history import uses_boundaries
from helios.runtime.sampling_rules import sampling_rules
from helios.runtime.scoring_rules import scoring_rules


@dataclass(frozen=True, slots=True)
class Frontend:
    """A core's tokenizer, its request preparation and its contract."""

    contract: PreparedContract
    tokenizer: Tokenizer
    preparer: Preparer

    def output(self, request: PreparedRequest) -> OutputPipeline:
        """A fresh pipeline for the output of `request`."""
        return OutputPipeline(self.tokenizer, request, self.preparer.reading)


class Bootstrap:
    """Start-up of the frontend."""

    @staticmethod
    def load(core: OpenedCore) -> Frontend:
        """Reads and checks the frontend's assets. Raises CoreError for unreadable ones and
        ContractError when contract and tokenizer contradict each other."""
        deployment = core.deployment
        tokenizer_data = core.read_resource(deployment.tokenizer_resource, ResourceKind.TOKENIZER)
        source = None
        if deployment.template_resource:
            data = core.read_resource(deployment.template_resource, ResourceKind.CHAT_TEMPLATE)
            try:
                source = data.decode("utf-8")
            except UnicodeDecodeError as error:
                raise CoreError(
                    f"the chat template is not UTF-8: {error}",
                    where=deployment.template_resource,
                    remedy="Prepare the core again",
                ) from error
        return assemble(core.contract, tokenizer_data, source)


def assemble(
    contract: PreparedContract, tokenizer_data: bytes, template_source: str | None
) -> Frontend:
    """A frontend from its parts; `Bootstrap.load` reads them from a core."""
    frontend = contract.model.frontend
    tokenizer = Tokenizer(tokenizer_data)
    rows = contract.model.input_vocabulary.input_tokens
    if tokenizer.id_extent > rows:
        raise ContractError(
            f"the tokenizer has ids up to {tokenizer.id_extent - 1}, the model {rows} tokens",
            where="model.input_vocabulary.input_tokens",
            remedy="Prepare the core again with the tokenizer that belongs to the model",
        )
    template = None
    if template_source is not None:
        template = ChatTemplate(template_source, _template_tokens(frontend))
    prompts = PromptMaker(
        tokenizer=tokenizer,
        guard=MarkerGuard(tokenizer, _tags(frontend, tokenizer, template)),
        template=template,
        bos_token=_bos_token(frontend, tokenizer),
        max_context_tokens=contract.max_context_tokens,
        input_tokens=contract.model.input_vocabulary.input_tokens,
        # Each boundary costs a rendering.
        boundary_rules=(
            frontend.prefix_boundaries if uses_boundaries(contract.model.graphs) else ()
        ),
    )
    preparer = Preparer(
        prompts=prompts,
        limits=PromptLimits(
            contract.max_context_tokens,
            contract.model.input_vocabulary.input_tokens,
            contract.model.vocabulary.sampled_tokens,
        ),
        defaults=contract.defaults.sampling,
        rules=sampling_rules(contract.model.graphs),
        scoring=scoring_rules(contract.model.graphs),
        eos_ids=frontend.eos_ids,
        reading=ResponseReading(frontend, tokenizer, contract.model.vocabulary.sampled_tokens),
        takes_grammars=takes_grammars(contract.model.graphs),
    )
    return Frontend(contract, tokenizer, preparer)


def _template_tokens(frontend: FrontendContract) -> dict[str, str]:
    tokens = frontend.template_tokens
    named = {
        "bos_token": tokens.bos_token,
        "eos_token": tokens.eos_token,
        "pad_token": tokens.pad_token,
        "unk_token": tokens.unk_token,
    }
    return {name: content for name, content in named.items() if content is not None}


def _tags(
    frontend: FrontendContract, tokenizer: Tokenizer, template: ChatTemplate | None
) -> list[str]:
    """Added tokens that structure a conversation without being special: the delimiters that the
    contract declares, or parts of them, and what the template writes by itself. Runs of white
    space aren't meant."""
    literals = template.literals if template is not None else ()
    written = "\0".join((*literals, *markers(frontend)))
    contents = (token.content for token in tokenizer.added.values())
    return [text for text in contents if text.strip() and text in written]


def _bos_token(frontend: FrontendContract, tokenizer: Tokenizer) -> int | None:
    tokens = frontend.template_tokens
    if not tokens.add_bos_token:
        return None
    found = tokenizer.token_id(tokens.bos_token) if tokens.bos_token is not None else None
    if found is None:
        raise ContractError(
            f"the tokenizer has no token {tokens.bos_token!r}",
            where="model.frontend.template_tokens.bos_token",
            remedy="Prepare the core again with the token that starts its prompts",
        )
    return found
