"""What each version of the model contract added, and what its absence means in an older one.

A contract of version 1 or 2 is read by refusing what it can't have and then writing the documented
values where they were implied, so that all else decodes the newest version only. Called by
`decoder`; the table is docs/model-contract.md's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import Message

from helios.contract.fields import join, refuse
from helios.schema import contract_pb2 as pb

CONTRACT_VERSIONS: Final = (1, 2, 3)
NEWEST_VERSION: Final = CONTRACT_VERSIONS[-1]

# Version 1 is text, one token a round. Version 2 added speculation, version 3 images, inputs that
# are never sampled, and startup tuning.
_SPECULATION: Final = 2
_IMAGES: Final = 3
_TUNING: Final = 3

# Fields that are not in version 1: message and field name to the version that added them.
FIELDS_SINCE: Final[Mapping[tuple[str, str], int]] = {
    ("ServingContract", "speculative_widths"): _SPECULATION,
    ("GraphContract", "draft_cursor"): _SPECULATION,
    ("GraphContract", "confidence_width"): _SPECULATION,
    ("GraphContract", "state_rows_per_request"): _SPECULATION,
    ("PageTableView", "page_offset"): _SPECULATION,
    ("ModelContract", "input_vocabulary"): _IMAGES,
    ("ModelContract", "vision"): _IMAGES,
    ("ValueBinding", "image_tensor"): _IMAGES,
    ("FrontendContract", "image_preparation"): _IMAGES,
    ("FrontendContract", "image_layout"): _IMAGES,
    ("FrontendContract", "image_settings"): _IMAGES,
    ("GraphContract", "tuned_bindings"): _TUNING,
}

# Enum values that are not in version 1, likewise.
VALUES_SINCE: Final[Mapping[tuple[str, int], int]] = {
    ("CacheRegionKind", pb.CACHE_REGION_KIND_CONTINUATION): _SPECULATION,
    ("Operation", pb.OPERATION_SPECULATIVE): _SPECULATION,
    ("Operation", pb.OPERATION_VISION): _IMAGES,
    ("ValueSource", pb.VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT): _SPECULATION,
    ("ValueSource", pb.VALUE_SOURCE_PROPOSAL_TOKEN): _SPECULATION,
    ("ValueSource", pb.VALUE_SOURCE_PROPOSAL_COUNT): _SPECULATION,
    ("ValueSource", pb.VALUE_SOURCE_PROPOSAL_GENERATION): _SPECULATION,
    ("ValueSource", pb.VALUE_SOURCE_PROPOSAL_ENDPOINT): _SPECULATION,
    ("ValueSource", pb.VALUE_SOURCE_PROPOSAL_GRAMMAR_MASK): _SPECULATION,
    ("ValueSource", pb.VALUE_SOURCE_IMAGE_FEATURE_INDEX): _IMAGES,
    ("ValueSource", pb.VALUE_SOURCE_IMAGE_CONTEXT_INDEX): _IMAGES,
    ("ValueSource", pb.VALUE_SOURCE_IMAGE_FEATURE_SLOT): _IMAGES,
    ("ValueSource", pb.VALUE_SOURCE_IMAGE_TENSOR): _IMAGES,
}


def in_newest_form(message: pb.ServingContract) -> pb.ServingContract:
    """`message` as version 3 would say it (itself if it is of version 3); `model.version` is kept.
    Raises ContractError at the path of the first field or value that came after its version."""
    version = message.model.version
    if version == NEWEST_VERSION:
        return message
    _refuse_later(message, version, "")
    whole = pb.ServingContract()
    whole.CopyFrom(message)
    model = whole.model
    if version < _SPECULATION:
        for graph in model.graphs:
            graph.state_rows_per_request = 1
    # In both older versions every id that can be put in can be sampled, and there are no images.
    if model.HasField("vocabulary"):
        model.input_vocabulary.input_tokens = model.vocabulary.sampled_tokens
    if model.HasField("frontend"):
        model.frontend.image_preparation = pb.IMAGE_PREPARATION_NONE
        model.frontend.image_layout = pb.IMAGE_LAYOUT_NONE
    return whole


def _refuse_later(message: Message, version: int, where: str) -> None:
    """Walks everything that is set."""
    for field, value in message.ListFields():
        path = join(where, field.name)
        since = FIELDS_SINCE.get((message.DESCRIPTOR.name, field.name), 1)
        if since > version:
            refuse(path, f"came with version {since}, but the contract says {version}", _REMEDY)
        values: Any = value if field.is_repeated else (value,)
        for index, item in enumerate(values):
            at = f"{path}[{index}]" if field.is_repeated else path
            if field.message_type is not None:
                _refuse_later(item, version, at)
            elif field.enum_type is not None:
                _refuse_later_value(field.enum_type.name, item, version, at)


def _refuse_later_value(enum: str, value: int, version: int, where: str) -> None:
    since = VALUES_SINCE.get((enum, value), 1)
    if since > version:
        refuse(
            where,
            f"{enum} {value} came with version {since}, but the contract says {version}",
            _REMEDY,
        )


_REMEDY: Final = f"Prepare the model again: exporters write version {NEWEST_VERSION}"
