"""Notes about matrices, gathered where they say the same."""

from __future__ import annotations

from ignition.preparation.capturing import gathered_notes


def test_what_is_said_of_several_matrices_is_said_once() -> None:
    notes = [
        "layers.0.qkv is stored as Q4_1: kept as bf16",
        "layers.0.down is 40 wide: kept as bf16",
        "layers.1.qkv is stored as Q4_1: kept as bf16",
        "layers.2.qkv is stored as Q4_1: kept as bf16",
    ]
    assert gathered_notes(notes) == [
        "layers.0.qkv, and 2 more: is stored as Q4_1: kept as bf16",
        "layers.0.down is 40 wide: kept as bf16",
    ]


def test_without_notes_nothing_is_said() -> None:
    assert gathered_notes([]) == []
