"""A tiny text model whose core sees: a vision program with random weights beside the real programs,
and a prefill program that takes what the image layout says of each token.

The vision program is recorded as a recipe would: patches are projected, their places added, one
gated feed-forward, then blocks of 2 x 2 patches become features. `features` is the same in numpy,
in double precision. Serving doesn't schedule such programs yet, so `Eyes` drives packer and device
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios import contract as serving_contracts
from helios.contract.model import ImageSettings, PreparedContract
from helios.kernels.catalogue import ActivationFormat
from helios.runtime.capacities import Capacities, available_nbytes
from helios.runtime.device import FRAMES, DeviceOptions
from helios.runtime.devices.opening import open_device
from helios.runtime.manifest import Manifest
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.packing import Packer
from helios.runtime.rounds import LaneWork
from helios.runtime.selection import select
from helios.schema import contract_pb2
from helios.schema import execution_pb2 as pb
from ignition import recipes
from ignition.capture import ops
from ignition.capture.buffers import WEIGHT_ALIGNMENT_NBYTES
from ignition.capture.handles import Activation, BufferHandle, Matrix, Rows
from ignition.capture.recorder import Recorder
from ignition.capture.target import CPU
from ignition.preparation import chat_syntax, serving
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.packing import Storage
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.stored_matrix import StoredMatrix, interleave_tiles
from ignition.preparation.weights import WeightSet
from tests.checkpoints import write_huggingface
from tests.model_parts import TINY_EXTENTS, WEIGHTS

VISION: Final = "vision.p64"
PREFILL: Final = "prefill.p32"
PATCH, MERGE, PATCHES, PLACES = 16, 2, 64, 64
PIXELS: Final = 3 * 2 * PATCH * PATCH
WIDTH, INNER, MERGED, FEATURE = 64, 96, 128, 32
EPSILON: Final = 1e-6
FEATURES, SEEN, PLACED, SLOT = "vision.features", "image.seen", "image.placed", "image.slot"

Floats = NDArray[np.float32]


def settings(feature_id: int) -> ImageSettings:
    """Settings whose pictures fit the program."""
    return ImageSettings(
        feature_ids=(feature_id,),
        atomic_spans=(),
        patch_size=PATCH,
        merge_size=MERGE,
        min_pixels=(2 * PATCH) ** 2,
        max_pixels=PATCHES * PATCH**2,
        mean=(0.48, 0.46, 0.41),
        std=(0.27, 0.26, 0.28),
    )


@dataclass(frozen=True)
class Weights:
    """The random weights, by name, [outputs, inputs] each."""

    values: Mapping[str, Floats]

    @classmethod
    def random(cls, seed: int = 3) -> Weights:
        """Weights that keep activations about as large as they were."""
        draw = np.random.default_rng(seed)
        shapes = {
            "patch": (WIDTH, PIXELS),
            "patch_bias": (1, WIDTH),
            "place": (PLACES, WIDTH // 2),
            "place_in": (WIDTH, WIDTH),
            "norm": (1, WIDTH),
            "gate": (INNER, WIDTH),
            "up": (INNER, WIDTH),
            "down": (WIDTH, INNER),
            "merge_norm": (1, WIDTH),
            "merge_gate": (MERGED, MERGE**2 * WIDTH),
            "merge_up": (MERGED, MERGE**2 * WIDTH),
            "merge_out": (FEATURE, MERGED),
            "seen": (PATCHES, WIDTH // 2),
            "placed": (PLACES, WIDTH // 2),
        }
        values = {
            name: (draw.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)
            for name, shape in shapes.items()
        }
        for name in ("norm", "merge_norm"):
            values[name] = (1 + values[name]).astype(np.float32)
        return cls(values)

    def features(self, patches: NDArray[Any], places: NDArray[Any]) -> NDArray[np.float64]:
        """The features of a picture's patches, [patches / 4, FEATURE]."""
        w = {name: value.astype(np.float64) for name, value in self.values.items()}

        def normed(x: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
            scale = np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON)
            return np.asarray(x / scale * weight)

        def gated(x: NDArray[np.float64], gate: str, up: str) -> NDArray[np.float64]:
            opened = x @ w[gate].T
            return np.asarray(opened / (1 + np.exp(-opened)) * (x @ w[up].T))

        x = patches.astype(np.float64) @ w["patch"].T + w["patch_bias"]
        place = w["place"][places].reshape(len(patches), WIDTH)
        x = x + place @ w["place_in"].T
        x = x + gated(normed(x, w["norm"]), "gate", "up") @ w["down"].T
        blocks = normed(x, w["merge_norm"]).reshape(-1, MERGE**2 * WIDTH)
        return np.asarray(gated(blocks, "merge_gate", "merge_up") @ w["merge_out"].T)


class _Declared:
    """The weights declared behind the text model's, and their bytes."""

    def __init__(self, recorder: Recorder, weights: Weights, before: bytes) -> None:
        self._buffers = recorder.buffers
        self._values = weights.values
        self._content = before

    @property
    def content(self) -> memoryview:
        """The weight resource: the text model's, then these."""
        return memoryview(self._content)

    def vector(self, name: str) -> BufferHandle:
        values = self._values[name].reshape(-1)
        handle = self._buffers.weight(name, pb.DTYPE_F32, pb.PACKING_PLAIN, values.shape)
        return self._placed(handle, values.tobytes())

    def matrix(self, *names: str) -> Matrix:
        """A matrix; of two, gate and up in turn."""
        parts = [StoredMatrix.from_elements(Storage.F32, self._values[name]) for name in names]
        stored = interleave_tiles(*parts) if len(parts) == 2 else parts[0]
        packed = stored.pack()
        handle = self._buffers.weight(names[0], pb.DTYPE_F32, packed.packing, packed.shape)
        return Matrix(self._placed(handle, packed.data.tobytes()), *packed.shape)

    def _placed(self, handle: BufferHandle, data: bytes) -> BufferHandle:
        gap = handle.offset - len(self._content)
        assert 0 <= gap < WEIGHT_ALIGNMENT_NBYTES
        self._content += bytes(gap) + data
        return handle


def _bind(destination: str, source: str, indexing: str, **more: Any) -> contract_pb2.ValueBinding:
    return contract_pb2.ValueBinding(
        destination=destination,
        source=contract_pb2.ValueSource.Value(f"VALUE_SOURCE_{source}"),
        indexing=contract_pb2.Indexing.Value(f"INDEXING_{indexing}"),
        **more,
    )


def _record_vision(recorder: Recorder, declared: _Declared) -> contract_pb2.GraphContract:
    """The vision program, and its graph."""
    live = Rows(recorder.staged_input("patch_count", pb.DTYPE_I32, (1,)), PATCHES)
    merged_rows = Rows(
        recorder.staged_input("features_count", pb.DTYPE_I32, (1,)), PATCHES // MERGE**2
    )
    halves = recorder.staged_input("half_rows", pb.DTYPE_I32, (1,))
    pixels = recorder.staged_input("patch_pixels", pb.DTYPE_F32, (PATCHES, PIXELS))
    places = recorder.staged_input("patch_places", pb.DTYPE_I32, (PATCHES, 2))
    out = recorder.retained_workspace(FEATURES, pb.DTYPE_F32, (PATCHES // MERGE**2, FEATURE))
    program = recorder.program(
        VISION,
        contract_pb2.OPERATION_VISION,
        batch_capacity=1,
        token_capacity=0,
        packed_token_capacity=PATCHES,
    )
    f32 = ActivationFormat.F32
    x = ops.linear(
        program,
        "x",
        live,
        Activation(pixels, PIXELS, f32),
        declared.matrix("patch"),
        declared.vector("patch_bias"),
    )
    # A place is a row and a column: two half rows of one table beside each other.
    half_rows = Rows(halves, 2 * PATCHES)
    place = ops.embed(program, "place", half_rows, places, declared.matrix("place"))
    ops.linear_add(
        program, live, Activation(place.buffer, WIDTH, f32), declared.matrix("place_in"), x
    )
    normed = ops.rms_norm(program, "n", live, x, declared.vector("norm"), EPSILON, f32)
    inner = ops.linear_silu_mul(program, "g", live, normed, declared.matrix("gate", "up"), f32)
    ops.linear_add(program, live, inner, declared.matrix("down"), x)
    blocks = ops.rms_norm(program, "m", live, x, declared.vector("merge_norm"), EPSILON, f32)
    merged = ops.linear_silu_mul(
        program,
        "mg",
        merged_rows,
        Activation(blocks.buffer, MERGE**2 * WIDTH, f32),
        declared.matrix("merge_gate", "merge_up"),
        f32,
    )
    ops.linear_into(program, merged_rows, merged, declared.matrix("merge_out"), out)
    return contract_pb2.GraphContract(
        name=VISION,
        operation=contract_pb2.OPERATION_VISION,
        bindings=[
            _bind("patch_count", "LIVE_TOKEN_COUNT", "SCALAR"),
            _bind("features_count", "IMAGE_TENSOR", "SCALAR", image_tensor="feature_count"),
            _bind("half_rows", "CONSTANT", "SCALAR", constant=2 * PATCHES),
            _bind("patch_pixels", "IMAGE_TENSOR", "PACKED_TOKEN", image_tensor="patches"),
            _bind("patch_places", "IMAGE_TENSOR", "PACKED_TOKEN", image_tensor="patch_positions"),
        ],
        state_rows_per_request=1,
    )


def _extend_prefill(
    recorder: Recorder, declared: _Declared, graph: contract_pb2.GraphContract
) -> None:
    """Adds to a prefill program what a model with images reads of each token: its feature's row, or
    zeros, and a row for each of its positions; and of each lane its feature slot's row."""
    program = recorder._programs[PREFILL]
    tokens, lanes = program.message.packed_token_capacity, program.message.batch_capacity
    tables = {SEEN: declared.matrix("seen"), PLACED: declared.matrix("placed")}
    tables[SLOT] = tables[PLACED]
    for name, destination, shape in (
        (SEEN, "feature_index", (tokens,)),
        (PLACED, "three_positions", (tokens, 3)),
        (SLOT, "feature_slot", (lanes,)),
    ):
        rows = recorder.staged_input(f"{destination}.rows", pb.DTYPE_I32, (1,))
        ids = recorder.staged_input(destination, pb.DTYPE_I32, shape)
        table, count = tables[name], prod(shape)
        out = recorder.retained_workspace(name, pb.DTYPE_F32, (count, table.width))
        program.launch(
            "embed",
            {"rows": rows, "tokens": ids, "table": table.buffer, "out": out},
            {
                "capacity": count,
                "vocab": table.outputs,
                "width": table.width,
                "packing": table.packing,
            },
            {"scale": 1.0},
        )
        graph.bindings.append(_bind(f"{destination}.rows", "CONSTANT", "SCALAR", constant=count))
    graph.bindings.extend(
        [
            _bind("feature_index", "IMAGE_FEATURE_INDEX", "PACKED_TOKEN", padding=-1),
            _bind("three_positions", "IMAGE_TENSOR", "PACKED_TOKEN", image_tensor="positions"),
            _bind("feature_slot", "IMAGE_FEATURE_SLOT", "ACTIVE_ROW", padding=-1),
        ]
    )


@dataclass(frozen=True)
class SeeingParts:
    """What a core of the model holds. `text_tokens` is the size of the text vocabulary; the id
    after it is the pictures' sentinel."""

    contract: PreparedContract
    manifest: Manifest
    resource: memoryview
    weights: Weights
    text_tokens: int

    @property
    def sentinel(self) -> int:
        """The id that stands for a feature."""
        return self.text_tokens


def seeing_parts(folder: Path) -> SeeingParts:
    """Captures the tiny text model with both additions, and checks what came of it as a start-up
    does."""
    weights = Weights.random()
    checkpoint = open_checkpoint(write_huggingface(folder / "text", "llama"))
    recorder = Recorder(CPU, weight_resource=WEIGHTS)
    text = WeightSet(recorder.buffers, checkpoint, WeightStorage.BF16)
    recipe = recipes.choose("auto", checkpoint.family)
    syntax = chat_syntax.choose(checkpoint.chat_template(), checkpoint.template_tokens)
    context = min(TINY_EXTENTS.max_context_tokens, checkpoint.parameters.context_tokens)
    extents = replace(TINY_EXTENTS, max_context_tokens=context)
    model = recipe.capture(checkpoint, recorder, text, extents, syntax)
    declared = _Declared(recorder, weights, b"".join(text.content()))
    prefill = next(graph for graph in model.graphs if graph.name == PREFILL)
    _extend_prefill(recorder, declared, prefill)
    model.graphs.append(_record_vision(recorder, declared))
    rows = model.input_vocabulary.input_tokens
    model.input_vocabulary.input_tokens = rows + 1
    model.input_vocabulary.image_sentinels.append(rows)
    model.vision.CopyFrom(
        contract_pb2.VisionContract(
            feature_slots=2,
            features_per_window=PATCHES // MERGE**2,
            patches_per_feature=MERGE**2,
            patch_capacities=[PATCHES],
        )
    )
    chosen = settings(rows)
    model.frontend.image_preparation = contract_pb2.IMAGE_PREPARATION_SMART_RESIZE
    model.frontend.image_layout = contract_pb2.IMAGE_LAYOUT_THREE_ROW_POSITIONS
    model.frontend.image_settings.CopyFrom(
        contract_pb2.ImageSettings(
            feature_ids=chosen.feature_ids,
            patch_size=chosen.patch_size,
            merge_size=chosen.merge_size,
            min_pixels=chosen.min_pixels,
            max_pixels=chosen.max_pixels,
            mean=chosen.mean,
            std=chosen.std,
        )
    )
    message = serving.serving_contract(
        model,
        extents,
        checkpoint.generation_defaults,
        served_id="seeing",
        aliases=(),
        cache_identity="seeing",
    )
    contract = serving_contracts.decode(message)
    manifest = decode_manifest(recorder.manifest())
    check_manifest(manifest, contract)
    return SeeingParts(contract, manifest, declared.content, weights, rows)


class Eyes:
    """The model loaded on a device. Rounds run one after the other."""

    def __init__(self, parts: SeeingParts, target: str) -> None:
        asked = Capacities(request_slots=2)
        chosen = select(parts.contract, parts.manifest, asked, available_nbytes())
        self._manifest = parts.manifest
        self._programs = [program.name for program in chosen.programs]
        self._device = open_device(target, DeviceOptions(threads=1))
        self._device.allocate(chosen.plan, {WEIGHTS: parts.resource})
        self._device.load(chosen.programs)
        self._packer = Packer(
            parts.contract,
            parts.manifest,
            chosen.plan,
            chosen.programs,
            self._device.view,
            request_slots=chosen.request_slots,
            cache_pages=chosen.cache_pages,
        )
        self._sequence = 0

    def run(self, program: str, lanes: Sequence[LaneWork]) -> None:
        """Packs a round, runs it and waits for it."""
        self._sequence += 1
        frame = self._sequence % FRAMES
        self._packer.pack(self._programs.index(program), frame, lanes)
        self._device.submit(self._programs.index(program), frame, self._sequence)
        assert self._device.wait(self._sequence, 120_000)

    def values(self, buffer: str) -> NDArray[Any]:
        """A buffer as the last round left it."""
        index = self._manifest.buffer_index[buffer]
        return self._device.read_buffer(index, self._sequence % FRAMES)

    def close(self) -> None:
        """Frees the device."""
        self._device.close()
