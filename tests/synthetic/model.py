"""Contract and manifest of a synthetic model: real destinations, buffers and bindings for any of
the histories, with the launches that start-up checks ask for. `tests.synthetic.device` plays them.
"""

from __future__ import annotations

import numpy as np

from helios.contract import PreparedContract
from helios.contract.decoder import decode
from helios.kernels.catalogue import BY_NAME
from helios.schema import contract_pb2 as cb
from helios.schema import execution_pb2 as pb
from tests.synthetic.histories import PAGE_TOKENS, VOCABULARY, History

SLOTS = 4
CONTEXT_TOKENS = 40
TABLE_PAGES = CONTEXT_TOKENS // PAGE_TOKENS
PACKED = 16
ROW_WORDS = 3  # accumulator, recurrent hash, hidden
_NBYTES = {"U8": 1, "I32": 4, "U32": 4, "F32": 4, "U64": 8}
_MODES = {
    "r": cb.ACCESS_MODE_READ,
    "w": cb.ACCESS_MODE_WRITE,
    "rw": cb.ACCESS_MODE_READ_WRITE,
}
# name: (dtype, rows, elements a row, source, indexing)
_DESTINATIONS = {
    "live_rows": ("I32", 1, 1, "LIVE_ROW_COUNT", "SCALAR"),
    "live_tokens": ("I32", 1, 1, "LIVE_TOKEN_COUNT", "SCALAR"),
    "prefill_row": ("I32", 1, 1, "MIXED_PREFILL_ROW", "SCALAR"),
    "slot": ("I32", SLOTS, 1, "SLOT", "ACTIVE_ROW"),
    "generation": ("I32", SLOTS, 1, "GENERATION", "ACTIVE_ROW"),
    "query_length": ("I32", SLOTS, 1, "QUERY_LENGTH", "ACTIVE_ROW"),
    "sample": ("I32", SLOTS, 1, "SAMPLING_DECISION", "ACTIVE_ROW"),
    "consumed": ("I32", SLOTS, 1, "CONSUMED_TOKENS", "ACTIVE_ROW"),
    "emitted": ("I32", SLOTS, 1, "EMITTED_TOKENS", "ACTIVE_ROW"),
    "output_limit": ("I32", SLOTS, 1, "OUTPUT_LIMIT", "ACTIVE_ROW"),
    "seed": ("U32", SLOTS, 2, "SEED", "ACTIVE_ROW"),
    "temperature": ("F32", SLOTS, 1, "TEMPERATURE", "ACTIVE_ROW"),
    "top_k": ("I32", SLOTS, 1, "TOP_K", "ACTIVE_ROW"),
    "top_p": ("F32", SLOTS, 1, "TOP_P", "ACTIVE_ROW"),
    "min_p": ("F32", SLOTS, 1, "MIN_P", "ACTIVE_ROW"),
    "eos_ids": ("I32", SLOTS, 16, "EOS_IDS", "ACTIVE_ROW"),
    "pending": ("I32", SLOTS, 1, "PENDING_TOKEN", "ACTIVE_ROW"),
    "live_row": ("I32", SLOTS, 1, "LIVE_STATE_ROW", "ACTIVE_ROW"),
    "restore_row": ("I32", SLOTS, 1, "RESTORE_SOURCE", "ACTIVE_ROW"),
    "snapshot_row": ("I32", SLOTS, 1, "SNAPSHOT_DESTINATION", "ACTIVE_ROW"),
    "tokens": ("I32", PACKED, 1, "PROMPT_TOKEN", "PACKED_TOKEN"),
    "positions": ("I32", PACKED, 1, "PROMPT_POSITION", "PACKED_TOKEN"),
}
_LANES = ("live_rows", "slot", "generation")
_ADMISSION = (
    *("consumed", "emitted", "output_limit", "seed", "temperature"),
    *("top_k", "top_p", "min_p", "eos_ids"),
)
_PROMPT = ("live_tokens", "query_length", "sample", "tokens", "positions", "page_table")


class SyntheticModel:
    """A history's contract and manifest, with the programs of every operation it can have."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.manifest = pb.ExecutionManifest(abi="synthetic", target="cpu")
        self._index: dict[str, int] = {}
        self._kernels: dict[str, int] = {}
        self._graphs: list[cb.GraphContract] = []
        self._declare_buffers()
        rows = self._row_inputs
        for lanes in (1, SLOTS):
            self._program("INITIALIZE", f"b{lanes}", lanes, 0, (*_LANES, *_ADMISSION, *rows))
        if history.partial_pages:
            self._record_snapshots()
        prompt = (*_LANES, *_PROMPT, *rows)
        for packed in (4, PACKED):
            self._program("PREFILL", f"p{packed}", SLOTS, packed, prompt)
        for lanes in (1, 2, SLOTS):
            self._program("DECODE", f"b{lanes}", lanes, lanes, (*_LANES, "page_table", *rows))
        self._program("MIXED", f"b{SLOTS}p{PACKED}", SLOTS, PACKED, (*prompt, "prefill_row"))

    @property
    def contract(self) -> PreparedContract:
        """The contract as the runtime reads it."""
        return decode(self._contract_message())

    def weights(self) -> dict[str, memoryview]:
        """None."""
        return {}

    @property
    def _row_inputs(self) -> tuple[str, ...]:
        return ("live_row",) if self.history.row_state else ()

    # ------------------------------------------------------------ programs

    def _record_snapshots(self) -> None:
        rows = self._row_inputs
        restore = (*_LANES, *_ADMISSION, "page_table", "restore_row", *rows)
        # A model whose state is its pages can save any endpoint; others only where they stand.
        endpoint = () if self.history.row_state else ("consumed",)
        for lanes in (1, SLOTS):
            self._program("RESTORE", f"b{lanes}", lanes, 0, restore)
            self._program("RESUME", f"b{lanes}", lanes, 0, (*restore, "pending"))
            snapshot = (*_LANES, "page_table", "snapshot_row", *endpoint, *rows)
            self._program("SNAPSHOT", f"b{lanes}", lanes, 0, snapshot)

    def _program(
        self, operation: str, suffix: str, lanes: int, packed: int, inputs: tuple[str, ...]
    ) -> None:
        samples = operation in ("PREFILL", "DECODE", "MIXED")
        name = f"{operation.lower()}.{suffix}"
        number = f"OPERATION_{operation}"
        accesses = [
            cb.StateAccess(view=view, mode=cb.ACCESS_MODE_READ_WRITE)
            for view in ("request", "pending_token", "page_table")
            if view != "page_table" or "page_table" in inputs
            if view == "page_table" or operation != "SNAPSHOT"
        ]
        program = self.manifest.programs.add(
            name=name,
            operation=number,
            batch_capacity=lanes,
            token_capacity=int(samples),
            packed_token_capacity=packed,
            accesses=accesses,
            inputs=inputs,
            completion="record" if samples else "",
        )
        graph = cb.GraphContract(
            name=name,
            operation=number,
            bindings=[self._binding(destination, operation) for destination in inputs],
            accesses=accesses,
            state_rows_per_request=1,
        )
        if operation in ("DECODE", "MIXED"):
            graph.pending_token.state_view = "pending_token"
        self._graphs.append(graph)
        self._record_launches(program, operation, lanes, inputs)

    def _record_launches(
        self, program: pb.Program, operation: str, lanes: int, inputs: tuple[str, ...]
    ) -> None:
        if "page_table" in inputs:
            staged = " ".join(f"in.page_table.{part}" for part in ("count", "index", "value"))
            self._launch(program, "scatter_i32", f"{staged} page_table", SLOTS * TABLE_PAGES)
        if operation in ("INITIALIZE", "RESTORE", "RESUME"):
            operands = " ".join(f"in.{name}" for name in ("slot", "generation", *_ADMISSION))
            self._launch(
                program, "initialize_requests", f"in.live_rows {operands} request_state", lanes
            )
        elif operation != "SNAPSHOT":
            prompt = "in.query_length in.sample" if "sample" in inputs else "- -"
            record = "completion.lanes completion.tokens completion.logprobs"
            self._launch(
                program,
                "commit",
                f"in.live_rows in.slot in.generation {prompt} sampled scores request_state"
                f" {record}",
                lanes,
            )

    def _binding(self, destination: str, operation: str) -> cb.ValueBinding:
        if destination == "page_table":
            return cb.ValueBinding(
                destination=destination,
                source=cb.VALUE_SOURCE_PAGE_TABLE,
                indexing=cb.INDEXING_PHYSICAL_REQUEST_ROW,
            )
        _, _, _, source, indexing = _DESTINATIONS[destination]
        if destination == "consumed" and operation == "INITIALIZE" and self.history.row_state:
            # Such a request can begin at nothing but zero without a snapshot.
            source = "CONSTANT"
        return cb.ValueBinding(
            destination=destination,
            source=f"VALUE_SOURCE_{source}",
            indexing=f"INDEXING_{indexing}",
            padding=-1 if destination == "eos_ids" else 0,
        )

    def _launch(self, program: pb.Program, kernel: str, operands: str, *integers: int) -> None:
        spec = BY_NAME[kernel]
        if kernel not in self._kernels:
            self._kernels[kernel] = len(self._kernels)
            self.manifest.kernels.add(
                name=kernel,
                operands=[operand.name for operand in spec.operands],
                integers=spec.integers,
                floats=spec.floats,
            )
        launch = program.launches.add(kernel=self._kernels[kernel], integers=integers)
        for operand, name in zip(spec.operands, operands.split(), strict=True):
            if name == "-":
                launch.operands.add()
            else:
                launch.operands.add(buffer=self._index[name] + 1, access=_MODES[operand.access])

    # ------------------------------------------------------------ storage

    def _declare_buffers(self) -> None:
        for name, (dtype, rows, columns, _, _) in _DESTINATIONS.items():
            shape = (rows,) if columns == 1 else (rows, columns)
            self._buffer(f"in.{name}", "INPUT", dtype, *shape)
            self.manifest.destinations.add(name=name, staged_buffer=f"in.{name}")
        for part in ("count", "index", "value"):
            entries = 1 if part == "count" else SLOTS * TABLE_PAGES
            self._buffer(f"in.page_table.{part}", "INPUT", "I32", entries)
        self.manifest.destinations.add(
            name="page_table",
            delta=pb.DeltaTransport(
                target_buffer="page_table",
                count_buffer="in.page_table.count",
                index_buffer="in.page_table.index",
                value_buffer="in.page_table.value",
            ),
        )
        self._buffer("request_state", "STATE", "U8", 128, leading="REQUEST_SLOTS")
        self._buffer("page_table", "STATE", "I32", TABLE_PAGES, leading="REQUEST_SLOTS")
        for plane, records in self.planes().items():
            self._buffer(plane, "CACHE", "U64", records, leading="CACHE_PAGES")
        if self.history.row_state:
            self._buffer("rows", "CACHE", "U64", ROW_WORDS, leading="SNAPSHOT_ROWS")
        for plane in self.history.saved_planes:
            records = self.planes()[plane]
            self._buffer(f"saved.{plane}", "CACHE", "U64", records, leading="SNAPSHOT_ROWS")
        self._buffer("completion.lanes", "COMPLETION", "I32", SLOTS, 12)
        self._buffer("completion.tokens", "COMPLETION", "I32", SLOTS, 1)
        self._buffer("completion.logprobs", "COMPLETION", "F32", SLOTS, 1)
        self.manifest.completions.add(
            name="record",
            lanes="completion.lanes",
            tokens="completion.tokens",
            logprobs="completion.logprobs",
        )
        for name, dtype in (("sampled", "I32"), ("scores", "F32")):
            message = self._buffer(name, "WORKSPACE", dtype, SLOTS)
            message.offset = self.manifest.workspace_nbytes
            self.manifest.workspace_nbytes += 64

    def planes(self) -> dict[str, int]:
        """Paged planes with their records a page. A model without attention keeps a page table
        all the same: requests are counted in pages."""
        history = self.history
        planes = {}
        if history.key_value:
            planes["kv"] = PAGE_TOKENS
        if history.latent:
            planes["latent"] = PAGE_TOKENS // history.latent
        if history.window:
            planes["window"] = PAGE_TOKENS
        return planes

    def _buffer(
        self, name: str, kind: str, dtype: str, *shape: int, leading: str = "FIXED"
    ) -> pb.Buffer:
        self._index[name] = len(self._index)
        return self.manifest.buffers.add(
            name=name,
            buffer_class=pb.BufferClass.Value(f"BUFFER_CLASS_{kind}"),
            dtype=pb.DType.Value(f"DTYPE_{dtype}"),
            packing=pb.PACKING_PLAIN,
            leading=pb.LeadingCount.Value(f"LEADING_COUNT_{leading}"),
            shape=shape,
            nbytes=int(np.prod(shape)) * _NBYTES[dtype],
        )

    # ------------------------------------------------------------ contract

    def _contract_message(self) -> cb.ServingContract:
        return cb.ServingContract(
            served_id="synthetic",
            cache_identity=f"synthetic/{self.history.name}",
            max_context_tokens=CONTEXT_TOKENS,
            prefill_extents=[4, PACKED],
            max_active=SLOTS,
            model=cb.ModelContract(
                version=3,
                vocabulary=cb.Vocabulary(sampled_tokens=VOCABULARY),
                input_vocabulary=cb.InputVocabulary(input_tokens=VOCABULARY),
                cache=cb.CacheContract(
                    page_tokens=PAGE_TOKENS,
                    regions=self._regions(),
                    page_tables=[cb.PageTableView(name="pages", destination="page_table")],
                ),
                graphs=self._graphs,
                frontend=cb.FrontendContract(
                    tool_parser=cb.TOOL_PARSER_NONE,
                    reasoning_parser=cb.REASONING_PARSER_NONE,
                    image_preparation=cb.IMAGE_PREPARATION_NONE,
                    image_layout=cb.IMAGE_LAYOUT_NONE,
                    eos_ids=[0],
                ),
                state_views=[
                    _view("request", "request_state", 128, 128),
                    _view("pending_token", "request_state", 128, 4),
                    _view("page_table", "page_table", 4 * TABLE_PAGES, 4 * TABLE_PAGES),
                ],
            ),
        )

    def _regions(self) -> list[cb.CacheRegion]:
        history = self.history
        regions = []

        def add(name: str, kind: str, *planes: str, record: int = 0, window: int = 0) -> None:
            regions.append(
                cb.CacheRegion(
                    name=name,
                    kind=f"CACHE_REGION_KIND_{kind}",
                    planes=planes,
                    tokens_per_record=record,
                    window_tokens=window,
                )
            )

        if history.key_value:
            add("attention", "PAGED_KEY_VALUE", "kv", record=1)
        if history.latent:
            add("compressed", "PAGED_LATENT", "latent", record=history.latent)
        if history.window:
            add("recent", "SLIDING_WINDOW", "window", window=history.window)
        if history.row_state:
            add("recurrence", "RECURRENT" if history.recurrent else "CONTINUATION", "rows")
        if history.saved_planes:
            add("partial", "CONTINUATION", *(f"saved.{plane}" for plane in history.saved_planes))
        return regions


def _view(name: str, buffer: str, stride: int, extent: int) -> cb.StateView:
    return cb.StateView(name=name, buffer=buffer, row_stride=stride, byte_extent=extent)
