"""A page's and a snapshot's bytes, taken out and put back elsewhere, are as good as computed: what
is decoded after them is bit-equal. On every host device, and in another runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from helios.errors import ExecutionError
from helios.runtime.cache_content import CacheContent
from helios.runtime.geometry import Operation
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.reference.device import ReferenceDevice
from helios.runtime.reference.differ import LockstepDevice
from helios.runtime.rounds import LaneAdmission, LaneWork, SamplingParameters
from tests.checkpoints import TOKENS
from tests.model_parts import ModelParts, capture_tiny
from tests.replaying import GENERATIONS, run_round, smallest
from tests.runtime.test_model_runtime import load as load_sample

PROMPT = [3 + 7 * index % (TOKENS - 3) for index in range(70)]
ADMISSION = LaneAdmission(SamplingParameters(temperature=0.8, seed=11), 100, 0, ())
STEPS = 9


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    return capture_tiny(tmp_path_factory.mktemp("checkpoints"), "llama")


@pytest.fixture(params=["cpu", "reference"])
def runtime(request: pytest.FixtureRequest, parts: ModelParts) -> Iterator[ModelRuntime]:
    with_snapshots = load(parts, request.param)
    yield with_snapshots
    with_snapshots.close()


def load(parts: ModelParts, target: str) -> ModelRuntime:
    return parts.load(target, request_slots=4, cache_tokens=512, snapshots=3)


Answer = list[tuple[int, float]]


def decode(runtime: ModelRuntime, slot: int, generation: int, pages: Sequence[int]) -> Answer:
    """What follows, with its logprobs."""
    program = smallest(runtime.geometry, Operation.DECODE)
    answer = []
    for step in range(STEPS):
        work = LaneWork(slot, generation, len(PROMPT) + step, (), True, pages)
        lane = run_round(runtime, program, [work]).lanes[0]
        answer.append((lane.tokens[0], lane.logprobs[0]))
    return answer


def compute(runtime: ModelRuntime, pages: Sequence[int], snapshot: int) -> Answer:
    """The prompt prefilled into `pages`, a snapshot of all of it but its last token, and the
    answer."""
    generation = next(GENERATIONS)
    geometry = runtime.geometry
    run_round(
        runtime,
        smallest(geometry, Operation.INITIALIZE),
        [LaneWork(0, generation, 0, (), False, (), ADMISSION)],
    )
    last = len(PROMPT) - 1
    for start, chunk, sample in ((0, PROMPT[:last], False), (last, PROMPT[last:], True)):
        if sample:
            saved = LaneWork(0, generation, last, (), False, pages, snapshot_row=snapshot)
            run_round(runtime, smallest(geometry, Operation.SNAPSHOT), [saved])
        lane = run_round(
            runtime,
            smallest(geometry, Operation.PREFILL, tokens=len(chunk)),
            [LaneWork(0, generation, start, tuple(chunk), sample, pages)],
        ).lanes[0]
    return [(lane.tokens[0], lane.logprobs[0]), *decode(runtime, 0, generation, pages)]


def resume(runtime: ModelRuntime, pages: Sequence[int], snapshot: int) -> Answer:
    """The answer from whole pages and a snapshot; the pages after them are new."""
    generation = next(GENERATIONS)
    last = len(PROMPT) - 1
    work = LaneWork(
        2,
        generation,
        last,
        (),
        False,
        pages,
        ADMISSION,
        restore_row=snapshot,
        pending_token=PROMPT[last],
    )
    run_round(runtime, smallest(runtime.geometry, Operation.RESUME), [work])
    step = LaneWork(2, generation, last, (), True, pages)
    lane = run_round(runtime, smallest(runtime.geometry, Operation.DECODE), [step]).lanes[0]
    return [(lane.tokens[0], lane.logprobs[0]), *decode(runtime, 2, generation, pages)]


def whole_pages(runtime: ModelRuntime) -> int:
    return (len(PROMPT) - 1) // runtime.geometry.page_tokens


def list_of(runtime: ModelRuntime, first: int) -> list[int]:
    """A page list that takes prompt and answer."""
    return [first + i for i in range(-(-(len(PROMPT) + STEPS + 1) // runtime.geometry.page_tokens))]


def scribble(content: CacheContent, pages: Sequence[int], snapshots: Sequence[int]) -> None:
    for page in pages:
        content.write_page(page, bytearray(b"\x5a" * content.page_nbytes))
    for snapshot in snapshots:
        content.write_snapshot(snapshot, b"\x5a" * content.snapshot_nbytes)


def test_content_taken_out_and_put_back_is_as_good_as_computed(runtime: ModelRuntime) -> None:
    content = runtime.cache_content
    pages = list_of(runtime, 0)
    expected = compute(runtime, pages, 0)
    saved = [content.read_page(page) for page in pages[: whole_pages(runtime)]]
    state = content.read_snapshot(0)
    scribble(content, pages, [0])
    elsewhere = list_of(runtime, 9)
    for page, kept in zip(elsewhere, saved, strict=False):
        content.write_page(page, kept.tobytes())
    content.write_snapshot(2, state.tobytes())
    assert resume(runtime, elsewhere, 2) == expected


def test_every_byte_of_content_matters(runtime: ModelRuntime) -> None:
    """The control: with one page or the snapshot left out, the answer is another."""
    content = runtime.cache_content
    expected = compute(runtime, list_of(runtime, 0), 0)
    saved = [content.read_page(page) for page in range(whole_pages(runtime))]
    for missing in range(len(saved) + 1):
        elsewhere = list_of(runtime, 9)
        scribble(content, elsewhere, [1])
        for index, kept in enumerate(saved):
            if index != missing:
                content.write_page(elsewhere[index], kept)
        if missing != len(saved):
            content.write_snapshot(1, content.read_snapshot(0))
        assert resume(runtime, elsewhere, 1) != expected


def test_another_runtime_of_the_same_layout_goes_on_from_it(
    runtime: ModelRuntime, parts: ModelParts
) -> None:
    expected = compute(runtime, list_of(runtime, 0), 0)
    other = load(parts, runtime.geometry.kernel_path.split("/")[0])
    try:
        assert other.cache_content.layout_digest == runtime.cache_content.layout_digest
        pages = list_of(other, 3)
        for index in range(whole_pages(other)):
            other.cache_content.write_page(pages[index], runtime.cache_content.read_page(index))
        other.cache_content.write_snapshot(0, runtime.cache_content.read_snapshot(0))
        assert resume(other, pages, 0) == expected
    finally:
        other.close()


def test_neighbours_keep_their_content(runtime: ModelRuntime) -> None:
    content = runtime.cache_content
    compute(runtime, list_of(runtime, 0), 1)
    pages = [content.read_page(page) for page in range(4)]
    snapshots = [content.read_snapshot(index) for index in range(3)]
    scribble(content, [1], [1])
    for page in (0, 2, 3):
        assert content.read_page(page) == pages[page]
    for index in (0, 2):
        assert content.read_snapshot(index) == snapshots[index]
    assert set(content.read_page(1)) == {0x5A}
    assert set(content.read_snapshot(1)) == {0x5A}


def test_sizes_and_numbers_are_checked(runtime: ModelRuntime) -> None:
    content = runtime.cache_content
    pages = runtime.geometry.cache_pages
    for page in (-1, pages):
        with pytest.raises(ExecutionError, match=f"page {page}: there are {pages}"):
            content.read_page(page)
        with pytest.raises(ExecutionError, match=f"page {page}: there are {pages}"):
            content.write_page(page, b"")
    for snapshot in (-1, 3):
        with pytest.raises(ExecutionError, match=f"snapshot {snapshot}: there are 3"):
            content.read_snapshot(snapshot)
        with pytest.raises(ExecutionError, match=f"snapshot {snapshot}: there are 3"):
            content.write_snapshot(snapshot, b"")
    with pytest.raises(ExecutionError, match="bytes of content for"):
        content.write_page(0, bytes(content.page_nbytes - 1))
    with pytest.raises(ExecutionError, match="bytes of content for"):
        content.write_snapshot(0, bytes(content.snapshot_nbytes + 1))


def test_layouts_differ_with_devices_and_models(parts: ModelParts) -> None:
    """The reference keeps wider elements; another number of pages is the same layout."""
    cpu, reference = load(parts, "cpu"), load(parts, "reference")
    more = parts.load("cpu", request_slots=2, cache_tokens=1024, snapshots=1)
    sample = load_sample()
    try:
        digests = [r.cache_content.layout_digest for r in (cpu, reference, more, sample)]
        assert digests[0] == digests[2]
        assert len(set(digests)) == 3
        assert cpu.cache_content.page_nbytes < reference.cache_content.page_nbytes
        # A core without snapshots has none to read.
        assert sample.cache_content.snapshot_nbytes >= 0
        with pytest.raises(ExecutionError, match="there are 0"):
            sample.cache_content.read_snapshot(0)
    finally:
        for runtime in (cpu, reference, more, sample):
            runtime.close()


def test_a_comparing_device_hands_out_the_candidates_content(parts: ModelParts) -> None:
    device = LockstepDevice(ReferenceDevice())
    runtime = parts.load("reference", request_slots=4, cache_tokens=512, snapshots=3, device=device)
    try:
        expected = compute(runtime, list_of(runtime, 0), 0)
        content = runtime.cache_content
        elsewhere = list_of(runtime, 9)
        for index in range(whole_pages(runtime)):
            content.write_page(elsewhere[index], content.read_page(index))
        assert resume(runtime, elsewhere, 0) == expected
        assert device.first_difference is None
    finally:
        runtime.close()
