"""Decoding of the frontend part of a contract: parser selectors and their syntax as data.

Called by `decoder` alone; what the syntax does is the frontend's business.
"""

from __future__ import annotations

from typing import Any

from helios.contract.enums import ImageLayout, ImagePreparation, ReasoningParser, ToolParser
from helios.contract.fields import each, enum, integer, join, name, real, refuse, unique
from helios.contract.frontend_syntax import check_frontend
from helios.contract.model import (
    EnvelopeSyntax,
    FrontendContract,
    ImageSettings,
    PrefixBoundaryRule,
    ReasoningSyntax,
    TemplateTokens,
    ToolSyntax,
)

SYNTAX_LIMIT = 4096  # characters of any delimiter
PIXELS_LIMIT = 1 << 31


def decode_frontend(message: Any, where: str, sampled_tokens: int) -> FrontendContract:
    """The frontend contract; end-of-sequence ids must lie in [0, sampled_tokens)."""
    path = join(where, "eos_ids")
    eos_ids = each(
        message.eos_ids, path, lambda token, at: integer(token, at, high=sampled_tokens - 1)
    )
    unique(eos_ids, path)
    frontend = FrontendContract(
        tool_parser=enum(ToolParser, message.tool_parser, join(where, "tool_parser")),
        reasoning_parser=enum(
            ReasoningParser, message.reasoning_parser, join(where, "reasoning_parser")
        ),
        image_preparation=enum(
            ImagePreparation, message.image_preparation, join(where, "image_preparation")
        ),
        image_layout=enum(ImageLayout, message.image_layout, join(where, "image_layout")),
        eos_ids=eos_ids,
        template_tokens=_template_tokens(message.template_tokens, join(where, "template_tokens")),
        envelope=_envelope(message.envelope, join(where, "envelope")),
        tool_syntax=_tool_syntax(message.tool_syntax, join(where, "tool_syntax")),
        reasoning_syntax=_reasoning_syntax(
            message.reasoning_syntax, join(where, "reasoning_syntax")
        ),
        prefix_boundaries=each(
            message.prefix_boundaries, join(where, "prefix_boundaries"), _prefix_boundary
        ),
        image_settings=(
            _image_settings(message.image_settings, join(where, "image_settings"))
            if message.HasField("image_settings")
            else None
        ),
    )
    check_frontend(frontend, where)
    return frontend


def _syntax(value: str, where: str) -> str:
    if len(value) > SYNTAX_LIMIT:
        refuse(where, f"has {len(value)} characters, over the limit of {SYNTAX_LIMIT}")
    return value


def _envelope(message: Any, where: str) -> EnvelopeSyntax:
    return EnvelopeSyntax(
        assistant_start=_syntax(message.assistant_start, join(where, "assistant_start")),
        message_end=_syntax(message.message_end, join(where, "message_end")),
        header_open=_syntax(message.header_open, join(where, "header_open")),
        header_close=_syntax(message.header_close, join(where, "header_close")),
        body_closes=each(message.body_closes, join(where, "body_closes"), name),
        channel_open=_syntax(message.channel_open, join(where, "channel_open")),
        format_open=_syntax(message.format_open, join(where, "format_open")),
        generic_recipients=each(
            message.generic_recipients, join(where, "generic_recipients"), name
        ),
    )


def _template_tokens(message: Any, where: str) -> TemplateTokens:
    def token(field: str) -> str | None:
        if not message.HasField(field):
            return None
        return _syntax(getattr(message, field), join(where, field))

    return TemplateTokens(
        bos_token=token("bos_token"),
        eos_token=token("eos_token"),
        pad_token=token("pad_token"),
        unk_token=token("unk_token"),
        add_bos_token=message.add_bos_token,
    )


def _tool_syntax(message: Any, where: str) -> ToolSyntax:
    return ToolSyntax(
        open=_syntax(message.open, join(where, "open")),
        close=_syntax(message.close, join(where, "close")),
        separator=_syntax(message.separator, join(where, "separator")),
        dialect=_syntax(message.dialect, join(where, "dialect")),
        wrapping_newlines=message.wrapping_newlines,
        call_open=_syntax(message.call_open, join(where, "call_open")),
        name_close=_syntax(message.name_close, join(where, "name_close")),
        call_close=_syntax(message.call_close, join(where, "call_close")),
        argument_open=_syntax(message.argument_open, join(where, "argument_open")),
        argument_name_close=_syntax(
            message.argument_name_close, join(where, "argument_name_close")
        ),
        value_open=_syntax(message.value_open, join(where, "value_open")),
        argument_close=_syntax(message.argument_close, join(where, "argument_close")),
        name_prefix=_syntax(message.name_prefix, join(where, "name_prefix")),
        name_keys=each(message.name_keys, join(where, "name_keys"), name),
        arguments_keys=each(message.arguments_keys, join(where, "arguments_keys"), name),
        call_id_open=_syntax(message.call_id_open, join(where, "call_id_open")),
    )


def _reasoning_syntax(message: Any, where: str) -> ReasoningSyntax:
    return ReasoningSyntax(
        open=_syntax(message.open, join(where, "open")),
        close=_syntax(message.close, join(where, "close")),
        terminal_marker=_syntax(message.terminal_marker, join(where, "terminal_marker")),
        wrapping_newlines=message.wrapping_newlines,
    )


def _prefix_boundary(message: Any, where: str) -> PrefixBoundaryRule:
    if not message.roles:
        refuse(join(where, "roles"), "is empty")
    return PrefixBoundaryRule(
        roles=each(message.roles, join(where, "roles"), name),
        needs_generation_prompt=message.needs_generation_prompt,
    )


def _image_settings(message: Any, where: str) -> ImageSettings:
    for field in ("mean", "std"):
        if len(getattr(message, field)) not in (0, 3):
            refuse(join(where, field), "must hold a value for each of the three colour channels")
    max_pixels = integer(message.max_pixels, join(where, "max_pixels"), low=1, high=PIXELS_LIMIT)
    return ImageSettings(
        feature_ids=each(message.feature_ids, join(where, "feature_ids"), integer),
        atomic_spans=each(message.atomic_spans, join(where, "atomic_spans"), integer),
        patch_size=integer(message.patch_size, join(where, "patch_size"), low=1),
        merge_size=integer(message.merge_size, join(where, "merge_size"), low=1),
        min_pixels=integer(message.min_pixels, join(where, "min_pixels"), high=max_pixels),
        max_pixels=max_pixels,
        mean=each(message.mean, join(where, "mean"), real),
        std=each(message.std, join(where, "std"), lambda v, at: real(v, at, low=1e-6)),
    )
