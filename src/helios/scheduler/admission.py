"""Which requests can be served at all, and how many pages one must find to be admitted.

Pure functions on a request and the geometry; who asks is `Scheduler.submit` and `Residency`.
A request that could be served once others have ended isn't refused: it waits.
"""

from __future__ import annotations

from array import array

from helios.errors import AdmissionError
from helios.runtime.geometry import Geometry
from helios.runtime.grammar_rules import REMEDY, UNSUPPORTED
from helios.runtime.sampling_rules import sampling_fault
from helios.runtime.scoring_rules import scoring_fault
from helios.scheduler.packed_tokens import packed
from helios.scheduler.ranking import PRIORITIES
from helios.scheduler.requests import Progress, Request

EOS_IDS = 16  # the state row's eos_ids


def check_request(request: Request, geometry: Geometry) -> array[int]:
    """The prompt, packed. Raises AdmissionError where no wait could make room for the request or it
    is malformed."""
    prompt = request.prompt
    where = f"request {request.request_id}"
    if not prompt:
        raise AdmissionError("the prompt is empty", where=where, remedy="Send at least one token")
    if request.output_limit < 1:
        raise AdmissionError(
            f"the output limit is {request.output_limit}",
            where=where,
            remedy="Ask for at least one token",
        )
    tokens = packed(prompt, geometry.input_tokens)
    if tokens is None:
        raise AdmissionError(
            f"the prompt has a token outside [0, {geometry.input_tokens})",
            where=where,
            remedy="Use the core's tokenizer",
        )
    if len(request.eos_ids) > EOS_IDS:
        raise AdmissionError(
            f"{len(request.eos_ids)} EOS ids",
            where=where,
            remedy=f"Use at most {EOS_IDS}",
        )
    if abs(request.priority) > PRIORITIES:
        raise AdmissionError(
            f"the priority is {request.priority}",
            where=where,
            remedy=f"Choose one in [-{PRIORITIES}, {PRIORITIES}]; lower is more urgent",
        )
    fault = sampling_fault(request.sampling, geometry.sampling, geometry.vocabulary_tokens)
    if fault is not None:
        raise AdmissionError(f"{fault.parameter} {fault.what}", where=where, remedy=fault.remedy)
    if request.sampling.min_tokens > request.output_limit:
        raise AdmissionError(
            f"min_tokens is {request.sampling.min_tokens}, and the output limit"
            f" {request.output_limit}",
            where=where,
            remedy="Lower the one or raise the other",
        )
    if request.score_prompt:
        problem = scoring_fault(request.prompt_top_logprobs, geometry.scoring)
        if problem is not None:
            raise AdmissionError(
                f"prompt_logprobs {problem.what}", where=where, remedy=problem.remedy
            )
    if request.constrained and not geometry.grammars:
        raise AdmissionError(f"grammar: {UNSUPPORTED}", where=where, remedy=REMEDY)
    total = len(prompt) + request.output_limit
    if total > geometry.max_context_tokens:
        raise AdmissionError(
            f"prompt and output need {total} tokens of a context of {geometry.max_context_tokens}",
            where=where,
            remedy="Shorten the prompt or lower the output limit",
        )
    pages = -(-request.stored_tokens // geometry.page_tokens)
    held = min(pages, window_pages(geometry))
    if held > geometry.cache_pages or pages > geometry.pages_per_request:
        raise AdmissionError(
            f"prompt and output need {pages} pages of a cache of {geometry.cache_pages}",
            where=where,
            remedy="Shorten the request or give the server more cache memory",
        )
    return tokens


def can_reuse(geometry: Geometry) -> bool:
    """Whether a request of this model can begin from anything that an earlier one has left."""
    rules = geometry.history
    return rules.starts_at_pages or (rules.restores and geometry.snapshot_rows > 0)


def window_pages(geometry: Geometry) -> int:
    """The most pages that a request must hold at once to make headway: those that reach into the
    window, and one that it writes to. Without windows it holds all of them."""
    window = geometry.history.window_tokens
    if not window:
        return geometry.pages_per_request
    return -(-window // geometry.page_tokens) + 2


def pages_to_admit(progress: Progress, prompt_tokens: int, page_tokens: int) -> int:
    """Pages that a request needs to become resident, shared ones included: those of its prompt and
    one for output, unless the whole request needs fewer."""
    prompt_pages = -(-prompt_tokens // page_tokens)
    every_page = -(-progress.request.stored_tokens // page_tokens)
    return min(prompt_pages + 1, every_page)
