"""The in-process API: open a core and generate, with no server and no second process.

`Engine` runs the same worker as the server does, on a thread, and prepares prompts with the same
frontend. Any number of threads may generate at once; their requests share rounds.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from helios.errors import AdmissionError, ExecutionError
from helios.frontend.bootstrap import Bootstrap, Frontend
from helios.frontend.chat_options import PLAIN_CHAT, ChatOptions
from helios.frontend.grammar.faults import grammar_error
from helios.frontend.grammar.structure import Structure
from helios.frontend.output import OutputPipeline, PromptToken
from helios.frontend.prepare import GenerationOptions, PreparedRequest, Preparer, choices
from helios.generations import Delta, Generation, whole
from helios.scheduler import SchedulerOptions
from helios.worker.messages import (
    FailedEvent,
    Finish,
    RejectedEvent,
    Statistics,
    TokensEvent,
    WorkerReady,
)
from helios.worker.options import WorkerOptions
from helios.worker.startup import LoadedModel, load_model
from helios.worker.worker_thread import PendingRequest, WorkerThread

__all__ = ["ChatOptions", "Engine", "Generation", "GenerationOptions"]

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]

_DEFAULTS: Final = GenerationOptions()


class Engine:
    """Use `open`, as a context manager or with `close`. Thread-safe."""

    def __init__(self, model: LoadedModel, frontend: Frontend) -> None:
        self.frontend = frontend
        self._model = model
        self._queue_capacity = model.scheduler.queue_limit
        self._worker = WorkerThread(
            model,
            open_token_bytes=lambda: frontend.tokenizer,
            open_vocabulary=lambda: frontend.preparer.reading.vocabulary,
        )

    @classmethod
    def open(
        cls,
        core: str | Path,
        *,
        accept: str,
        publisher_key: bytes | None = None,
        allow_unknown_publisher: bool = False,
        core_key: str | Path | None = None,
        cache_dir: str | Path | None = None,
        allow_private_mirrors: bool = False,
        mirror_timeout_s: float | None = None,
        target: str | None = None,
        device: int = 0,
        threads: int | None = None,
        instruction_set: str | None = None,
        request_slots: int | None = None,
        cache_nbytes: int | None = None,
        cache_share: float | None = None,
        speculative_width: int | None = None,
        snapshots: int | None = None,
        prompt_cache: str | Path | None = None,
        prompt_cache_nbytes: int | None = None,
        offload_nbytes: int = 0,
        history_drafting: bool = False,
        verify_weights: bool = True,
        oracle: bool = True,
        scheduler: SchedulerOptions | None = None,
    ) -> Engine:
        """Opens a core's folder and loads its model; `accept` must be the publisher's namespace,
        `core_key` the key file of a sealed core; the other options are those of `WorkerOptions`.
        Raises CoreError, ContractError or ExecutionError, HeliosError for options that contradict
        each other."""
        options = WorkerOptions(
            core=str(core),
            accept=accept,
            publisher_key=publisher_key,
            allow_unknown_publisher=allow_unknown_publisher,
            core_key=None if core_key is None else str(core_key),
            cache_dir=None if cache_dir is None else str(cache_dir),
            allow_private_mirrors=allow_private_mirrors,
            mirror_timeout_s=mirror_timeout_s,
            target=target,
            device=device,
            threads=threads,
            instruction_set=instruction_set,
            request_slots=request_slots,
            cache_nbytes=cache_nbytes,
            cache_share=cache_share,
            speculative_width=speculative_width,
            snapshots=snapshots,
            prompt_cache=None if prompt_cache is None else str(prompt_cache),
            prompt_cache_nbytes=prompt_cache_nbytes,
            offload_nbytes=offload_nbytes,
            history_drafting=history_drafting,
            verify_weights=verify_weights,
            oracle=oracle,
            scheduler=scheduler or SchedulerOptions(),
        )
        model = load_model(options)
        try:
            frontend = Bootstrap.load(model.core)
        except BaseException:
            model.close()
            raise
        return cls(model, frontend)

    @property
    def info(self) -> WorkerReady:
        """Kernel path, capacities and start-up times."""
        return self._model.ready_message()

    # ------------------------------------------------------------ generation

    def generate(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions = _DEFAULTS,
        *,
        structure: Structure | None = None,
    ) -> list[Generation]:
        """Continues every prompt (text or token ids), all of them at once; `structure` is what each
        output has to be. Raises RequestError for a bad prompt or structure before any runs,
        AdmissionError or ExecutionError as a request meets them; the others are then cancelled."""
        prepare = self._preparer().prepare_completion
        return self._complete([prepare(prompt, options, structure=structure) for prompt in prompts])

    def choices(
        self,
        prompt: Prompt,
        count: int,
        options: GenerationOptions = _DEFAULTS,
        *,
        structure: Structure | None = None,
    ) -> list[Generation]:
        """Continues a prompt in `count` ways: the i-th with the seed plus i, as if it were asked
        for alone. The prompt is computed once. Otherwise as `generate`."""
        prepared = self._preparer().prepare_completion(prompt, options, structure=structure)
        pending = self._worker.submit(choices(prepared, count), siblings=True)
        try:
            every = [whole(one.prepared.prompt_tokens, self._deltas(one)) for one in pending]
            return [replace(one, prompt_scores=every[0].prompt_scores) for one in every]
        finally:
            for one in pending:
                self._worker.abandon(one)

    def chat(
        self,
        messages: Messages,
        options: GenerationOptions = _DEFAULTS,
        chat: ChatOptions = PLAIN_CHAT,
    ) -> Generation:
        """The assistant's next message; `chat` has tools, the answer's form, and what the template
        is told. Raises as `generate`."""
        return self._complete([self._preparer().prepare_chat(messages, options, chat)])[0]

    def stream(
        self,
        prompt: Prompt,
        options: GenerationOptions = _DEFAULTS,
        *,
        structure: Structure | None = None,
    ) -> Iterator[Delta]:
        """As `generate` for one prompt, step by step. Dropping the iterator cancels."""
        prepare = self._preparer().prepare_completion
        return self._stream(prepare(prompt, options, structure=structure))

    def stream_chat(
        self,
        messages: Messages,
        options: GenerationOptions = _DEFAULTS,
        chat: ChatOptions = PLAIN_CHAT,
    ) -> Iterator[Delta]:
        """As `chat`, step by step. Dropping the iterator cancels."""
        return self._stream(self._preparer().prepare_chat(messages, options, chat))

    def _preparer(self) -> Preparer:
        """What prepares requests. Raises ExecutionError in a fork of the engine's process."""
        self._worker.check_process()
        return self.frontend.preparer

    def _complete(self, prepared: Sequence[PreparedRequest]) -> list[Generation]:
        """Runs all requests, as many at once as the queue takes."""
        at_once = self._queue_capacity
        pending = self._worker.submit(prepared[:at_once])
        generations: list[Generation] = []
        try:
            for index in range(len(prepared)):
                prompt = prepared[index].prompt_tokens
                generations.append(whole(prompt, self._deltas(pending[index])))
                pending += self._worker.submit(prepared[index + at_once : index + at_once + 1])
        finally:
            for one in pending:
                self._worker.abandon(one)
        return generations

    def _stream(self, prepared: PreparedRequest) -> Generator[Delta, None, None]:
        (pending,) = self._worker.submit([prepared])
        try:
            yield from self._deltas(pending)
        finally:
            self._worker.abandon(pending)

    def _deltas(self, pending: PendingRequest) -> Iterator[Delta]:
        """A request's deltas up to its last. Raises what it ends with otherwise."""
        pipeline = self.frontend.output(pending.prepared)
        where = f"request {pending.request_id}"
        silent, scored = pending.prepared.unanswered, pending.scored
        finish = None
        while finish is None:
            self._worker.check_process()
            event = pending.events.get()
            match event:
                case TokensEvent():
                    finish = Finish(event.finish) if event.finish else None
                    delta = pipeline.push(
                        event.tokens, event.logprobs, event.alternatives, last=finish is not None
                    )
                    alternatives = tuple(token.alternatives for token in delta.tokens)
                    yield Delta(
                        delta.text,
                        () if silent else tuple(event.tokens),
                        () if silent else tuple(event.logprobs),
                        finish,
                        event.reused_prompt_tokens,
                        alternatives if event.alternatives else (),
                        _scores(pipeline, event) if scored else (),
                        delta.parts,
                    )
                    scored = False
                case RejectedEvent():
                    raise AdmissionError(event.message)
                case FailedEvent() if event.fault:
                    raise grammar_error(event.fault, event.message, pending.prepared.grammar_where)
                case FailedEvent():
                    raise ExecutionError(event.message, where=where)
                case _:
                    raise event

    # ------------------------------------------------------------ the worker

    def statistics(self) -> Statistics:
        """Counters since start, gauges now. Raises the engine's failure."""
        return self._worker.statistics()

    def reset_prefix_cache(self) -> None:
        """From now on nothing computed before is reused; the prompt cache's files are deleted.
        Raises the engine's failure."""
        self._worker.reset_prefix_cache()

    def close(self) -> None:
        """Cancels what runs, waits for the device and lets go of the model. Idempotent; does
        nothing in a fork of the engine's process."""
        if self._worker.close():
            self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _scores(pipeline: OutputPipeline, event: TokensEvent) -> tuple[PromptToken, ...]:
    """The prompt's scores, which come with the first token; none where nothing came."""
    if not event.tokens:
        return ()
    return pipeline.scored(event.prompt_logprobs, event.prompt_ranks, event.prompt_alternatives)
