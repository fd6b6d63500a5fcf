"""From a ServingContract message to a `PreparedContract`: every field read and range-checked.

What one field alone can tell is checked here, in `graph_decoder` and in `frontend_decoder`; what
several must agree on is in `agreement`. Called when a core is opened and before one is exported.
"""

from __future__ import annotations

from typing import Any

from helios.contract import fields
from helios.contract.agreement import check_agreement
from helios.contract.enums import CacheRegionKind
from helios.contract.fields import child, each, enum, integer, join, name, real, refuse, unique
from helios.contract.frontend_decoder import decode_frontend
from helios.contract.graph_decoder import decode_graph, decode_state_view
from helios.contract.model import (
    CacheContract,
    CacheRegion,
    InputVocabulary,
    ModelContract,
    PageTableView,
    PreparedContract,
    SamplingDefaults,
    ServingDefaults,
    VisionContract,
    Vocabulary,
)
from helios.contract.versions import CONTRACT_VERSIONS, in_newest_form
from helios.schema import contract_pb2

_PAGED = (CacheRegionKind.PAGED_KEY_VALUE, CacheRegionKind.PAGED_LATENT)


def decode(message: contract_pb2.ServingContract) -> PreparedContract:
    """The validated contract. Raises ContractError whose `where` is the offending field's path
    from the ServingContract, like `model.graphs[3].bindings[1].source`."""
    version = child(message, "model", "").version
    if version not in CONTRACT_VERSIONS:
        known = ", ".join(map(str, CONTRACT_VERSIONS))
        refuse("model.version", f"version {version} is not supported", f"This Helios reads {known}")
    fields.refuse_unknown_fields(message)
    message = in_newest_form(message)
    contract = PreparedContract(
        served_id=name(message.served_id, "served_id"),
        aliases=each(message.aliases, "aliases", name),
        cache_identity=name(message.cache_identity, "cache_identity"),
        max_context_tokens=integer(message.max_context_tokens, "max_context_tokens", low=1),
        prefill_extents=fields.ascending(message.prefill_extents, "prefill_extents"),
        cache_pages=integer(message.cache_pages, "cache_pages"),
        snapshot_rows=integer(message.snapshot_rows, "snapshot_rows"),
        max_active=integer(message.max_active, "max_active", low=1, high=1 << 16),
        speculative_widths=fields.ascending(message.speculative_widths, "speculative_widths"),
        defaults=_serving_defaults(message.defaults, "defaults"),
        model=_model(message.model, "model"),
    )
    unique((contract.served_id, *contract.aliases), "served_id and aliases")
    check_agreement(contract.model)
    return contract


def _serving_defaults(message: Any, where: str) -> ServingDefaults:
    def count(field: str) -> int | None:
        return integer(getattr(message, field), join(where, field)) or None

    return ServingDefaults(
        sampling=_sampling_defaults(message.sampling, join(where, "sampling")),
        queue_capacity=count("queue_capacity"),
        frontend_workers=count("frontend_workers"),
        event_capacity=count("event_capacity"),
    )


def _sampling_defaults(message: Any, where: str) -> SamplingDefaults:
    def optional_real(field: str, low: float, high: float) -> float | None:
        if not message.HasField(field):
            return None
        return real(getattr(message, field), join(where, field), low=low, high=high)

    def optional_integer(field: str, low: int) -> int | None:
        if not message.HasField(field):
            return None
        return integer(getattr(message, field), join(where, field), low=low)

    return SamplingDefaults(
        temperature=optional_real("temperature", 0.0, 100.0),
        top_k=optional_integer("top_k", 0),
        top_p=optional_real("top_p", 0.0, 1.0),
        min_p=optional_real("min_p", 0.0, 1.0),
        repetition_penalty=optional_real("repetition_penalty", 1e-6, 1e6),
        presence_penalty=optional_real("presence_penalty", -2.0, 2.0),
        frequency_penalty=optional_real("frequency_penalty", -2.0, 2.0),
        max_output_tokens=optional_integer("max_output_tokens", 1),
    )


def _model(message: Any, where: str) -> ModelContract:
    vocabulary = _vocabulary(child(message, "vocabulary", where), join(where, "vocabulary"))
    return ModelContract(
        version=message.version,
        vocabulary=vocabulary,
        input_vocabulary=_input_vocabulary(
            child(message, "input_vocabulary", where),
            join(where, "input_vocabulary"),
            vocabulary.sampled_tokens,
        ),
        vision=(
            _vision(message.vision, join(where, "vision")) if message.HasField("vision") else None
        ),
        cache=_cache(child(message, "cache", where), join(where, "cache")),
        graphs=each(message.graphs, join(where, "graphs"), decode_graph),
        frontend=decode_frontend(
            child(message, "frontend", where), join(where, "frontend"), vocabulary.sampled_tokens
        ),
        state_views=each(message.state_views, join(where, "state_views"), decode_state_view),
    )


def _vocabulary(message: Any, where: str) -> Vocabulary:
    sampled = integer(message.sampled_tokens, join(where, "sampled_tokens"), low=1)
    histogram = integer(message.histogram_tokens, join(where, "histogram_tokens"))
    if histogram and histogram < sampled:
        refuse(
            join(where, "histogram_tokens"),
            f"{histogram} columns don't cover {sampled} sampled tokens",
        )
    words = integer(message.mask_words, join(where, "mask_words"))
    if words and 32 * words < sampled:
        refuse(join(where, "mask_words"), f"{words} words don't cover {sampled} sampled tokens")
    return Vocabulary(sampled, histogram, words)


def _input_vocabulary(message: Any, where: str, sampled: int) -> InputVocabulary:
    tokens = integer(message.input_tokens, join(where, "input_tokens"), low=sampled)
    path = join(where, "image_sentinels")
    sentinels = each(
        message.image_sentinels,
        path,
        lambda token, at: integer(token, at, low=sampled, high=tokens - 1),
    )
    unique(sentinels, path)
    return InputVocabulary(tokens, sentinels)


def _vision(message: Any, where: str) -> VisionContract:
    return VisionContract(
        feature_slots=integer(message.feature_slots, join(where, "feature_slots"), low=1),
        features_per_window=integer(
            message.features_per_window, join(where, "features_per_window"), low=1
        ),
        patches_per_feature=integer(
            message.patches_per_feature, join(where, "patches_per_feature"), low=1
        ),
        patch_capacities=fields.ascending(
            message.patch_capacities, join(where, "patch_capacities")
        ),
    )


def _cache(message: Any, where: str) -> CacheContract:
    page_tokens = integer(message.page_tokens, join(where, "page_tokens"), low=1, high=1 << 16)
    cache = CacheContract(
        page_tokens=page_tokens,
        regions=each(
            message.regions, join(where, "regions"), lambda m, at: _region(m, at, page_tokens)
        ),
        page_tables=each(message.page_tables, join(where, "page_tables"), _page_table),
    )
    unique((region.name for region in cache.regions), join(where, "regions"), ".name")
    unique((view.name for view in cache.page_tables), join(where, "page_tables"), ".name")
    unique(
        (view.destination for view in cache.page_tables),
        join(where, "page_tables"),
        ".destination",
    )
    planes: set[str] = set()
    for index, region in enumerate(cache.regions):
        for number, plane in enumerate(region.planes):
            if plane in planes:
                refuse(join(where, f"regions[{index}].planes[{number}]"), f"{plane!r} occurs twice")
            planes.add(plane)
    return cache


def _region(message: Any, where: str, page_tokens: int) -> CacheRegion:
    kind = enum(CacheRegionKind, message.kind, join(where, "kind"))
    paged, sliding = kind in _PAGED, kind is CacheRegionKind.SLIDING_WINDOW
    records = message.tokens_per_record
    if paged:
        integer(records, join(where, "tokens_per_record"), low=1, high=page_tokens)
        if page_tokens % records:
            refuse(
                join(where, "tokens_per_record"), f"{records} doesn't divide {page_tokens} tokens"
            )
        if not message.planes:
            refuse(join(where, "planes"), "a paged region names no plane")
    elif records:
        refuse(join(where, "tokens_per_record"), f"belongs to paged regions, not to {kind.name}")
    if sliding:
        integer(message.window_tokens, join(where, "window_tokens"), low=1)
    elif message.window_tokens:
        refuse(join(where, "window_tokens"), f"belongs to sliding windows, not to {kind.name}")
    return CacheRegion(
        name=name(message.name, join(where, "name")),
        kind=kind,
        planes=each(message.planes, join(where, "planes"), name),
        tokens_per_record=records,
        window_tokens=message.window_tokens,
    )


def _page_table(message: Any, where: str) -> PageTableView:
    return PageTableView(
        name=name(message.name, join(where, "name")),
        destination=name(message.destination, join(where, "destination")),
        page_offset=integer(message.page_offset, join(where, "page_offset")),
    )
