"""A small complete serving contract, as message, for tests to break one field at a time."""

from __future__ import annotations

from helios.schema import contract_pb2 as pb

SLOTS = 4
PAGE_TOKENS = 4
CONTEXT_TOKENS = 24
VOCABULARY = 50


def bind(destination: str, source: str, indexing: str, **more: int) -> pb.ValueBinding:
    return pb.ValueBinding(
        destination=destination,
        source=pb.ValueSource.Value(f"VALUE_SOURCE_{source}"),
        indexing=pb.Indexing.Value(f"INDEXING_{indexing}"),
        **more,
    )


COMMON = [
    bind("live_rows", "LIVE_ROW_COUNT", "SCALAR"),
    bind("slot", "SLOT", "ACTIVE_ROW"),
    bind("generation", "GENERATION", "ACTIVE_ROW"),
]
PAGES = bind("page_table", "PAGE_TABLE", "PHYSICAL_REQUEST_ROW")
ADMISSION = [
    bind("consumed", "CONSUMED_TOKENS", "ACTIVE_ROW"),
    bind("emitted", "EMITTED_TOKENS", "ACTIVE_ROW"),
    bind("output_limit", "OUTPUT_LIMIT", "ACTIVE_ROW"),
    bind("seed", "SEED", "ACTIVE_ROW"),
    bind("temperature", "TEMPERATURE", "ACTIVE_ROW"),
    bind("top_k", "TOP_K", "ACTIVE_ROW"),
    bind("top_p", "TOP_P", "ACTIVE_ROW"),
    bind("min_p", "MIN_P", "ACTIVE_ROW"),
    bind("eos_ids", "EOS_IDS", "ACTIVE_ROW", padding=-1),
]
PREFILL = [
    bind("live_tokens", "LIVE_TOKEN_COUNT", "SCALAR"),
    bind("query_length", "QUERY_LENGTH", "ACTIVE_ROW"),
    bind("sample", "SAMPLING_DECISION", "ACTIVE_ROW"),
    bind("tokens", "PROMPT_TOKEN", "PACKED_TOKEN"),
    bind("positions", "PROMPT_POSITION", "PACKED_TOKEN"),
    bind("token_slot", "SLOT", "PACKED_TOKEN"),
    PAGES,
]


def sample_accesses(operation: str) -> list[pb.StateAccess]:
    """What the sample's graphs and programs declare of the state."""
    views = ["pending_token", "request"]
    if operation != "INITIALIZE":
        views.append("page_table")
    return [pb.StateAccess(view=view, mode=pb.ACCESS_MODE_READ_WRITE) for view in views]


def _graph(name: str, operation: str, bindings: list[pb.ValueBinding]) -> pb.GraphContract:
    return pb.GraphContract(
        name=name,
        operation=pb.Operation.Value(f"OPERATION_{operation}"),
        bindings=bindings,
        accesses=sample_accesses(operation),
        pending_token=pb.PendingToken(state_view="pending_token"),
        state_rows_per_request=1,
    )


def sample_contract() -> pb.ServingContract:
    """A fresh valid message: slots 4, pages of 4 tokens, context 24."""
    return pb.ServingContract(
        served_id="sample",
        aliases=["sample-alias"],
        cache_identity="sample/1",
        max_context_tokens=CONTEXT_TOKENS,
        prefill_extents=[8, 16],
        cache_pages=24,
        max_active=SLOTS,
        defaults=pb.ServingDefaults(
            sampling=pb.SamplingDefaults(temperature=0.5, top_k=0), queue_capacity=8
        ),
        model=pb.ModelContract(
            version=3,
            vocabulary=pb.Vocabulary(sampled_tokens=VOCABULARY),
            input_vocabulary=pb.InputVocabulary(input_tokens=VOCABULARY + 2, image_sentinels=[51]),
            vision=pb.VisionContract(
                feature_slots=4,
                features_per_window=2,
                patches_per_feature=4,
                patch_capacities=[16, 64],
            ),
            cache=pb.CacheContract(
                page_tokens=PAGE_TOKENS,
                regions=[
                    pb.CacheRegion(
                        name="attention",
                        kind=pb.CACHE_REGION_KIND_PAGED_KEY_VALUE,
                        planes=["cache.k.0", "cache.v.0"],
                        tokens_per_record=1,
                    )
                ],
                page_tables=[pb.PageTableView(name="pages", destination="page_table")],
            ),
            graphs=[
                _graph("initialize.b4", "INITIALIZE", COMMON + ADMISSION),
                _graph("prefill.p8", "PREFILL", COMMON + PREFILL),
                _graph("prefill.p16", "PREFILL", COMMON + PREFILL),
                _graph("decode.b1", "DECODE", [*COMMON, PAGES]),
                _graph("decode.b2", "DECODE", [*COMMON, PAGES]),
                _graph("decode.b4", "DECODE", [*COMMON, PAGES]),
            ],
            frontend=pb.FrontendContract(
                tool_parser=pb.TOOL_PARSER_NONE,
                reasoning_parser=pb.REASONING_PARSER_THINK_TAGS,
                reasoning_syntax=pb.ReasoningSyntax(open="<think>", close="</think>"),
                image_preparation=pb.IMAGE_PREPARATION_NONE,
                image_layout=pb.IMAGE_LAYOUT_NONE,
                eos_ids=[2, 3],
                template_tokens=pb.TemplateTokens(eos_token="</s>"),
                prefix_boundaries=[pb.PrefixBoundaryRule(roles=["user"])],
            ),
            state_views=[
                pb.StateView(
                    name="request", buffer="request_state", row_stride=128, byte_extent=128
                ),
                pb.StateView(
                    name="pending_token", buffer="request_state", row_stride=128, byte_extent=4
                ),
                pb.StateView(name="page_table", buffer="page_table", row_stride=24, byte_extent=24),
            ],
        ),
    )


def sample_of_version(version: int) -> pb.ServingContract:
    """The sample without what came after `version`."""
    message = sample_contract()
    message.model.version = version
    if version < 3:
        for part, fields in (
            (message.model, ("input_vocabulary", "vision")),
            (message.model.frontend, ("image_preparation", "image_layout")),
        ):
            for field in fields:
                part.ClearField(field)
    if version < 2:
        for graph in message.model.graphs:
            graph.ClearField("state_rows_per_request")
    return message
