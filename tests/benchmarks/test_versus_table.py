"""The table of benchmarks/versus.py: best peers, ratios, aims, and figures as they are shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from benchmarks.versus_parts.aims import (
    AIMS,
    NOTHING,
    Aim,
    Row,
    Spread,
    best_peer,
    comparison,
    everyone,
    figure,
    markdown,
)
from benchmarks.versus_parts.perplexity import Form, Passages, passages, smallest_above, table

OURS = "Helios"
SAMPLES = {
    ("Helios as-stored", Row.DECODE_1): [500.0, 520.0, 480.0],
    ("Helios bf16", Row.DECODE_1): [170.0],
    ("llama.cpp q4_0", Row.DECODE_1): [214.0, 100.0, 262.0],
    ("onnxruntime-genai int4", Row.DECODE_1): [235.0, 236.0, 211.0],
    ("Helios as-stored", Row.FIRST_TOKEN): [120.0],
    ("vLLM bf16", Row.FIRST_TOKEN): [166.0],
    ("llama.cpp q4_0", Row.FIRST_TOKEN): [365.0],
    ("Helios as-stored", Row.SERVING_RSS): [383.0],
    ("llama.cpp q4_0", Row.HTTP_32): [900.0],
}


def rows() -> dict[str, list[str]]:
    head, *found = comparison(SAMPLES, OURS)
    return {row[0]: dict(zip(head, row, strict=True)) for row in found}  # type: ignore[misc]


def test_a_row_compares_our_first_form_with_the_best_median_of_the_peers() -> None:
    row = rows()[Row.DECODE_1]
    assert row == {
        "": "decode, 1 lane, tok/s",
        "Helios": "500 (480..520)",
        "best peer": "onnxruntime-genai int4",
        "its figure": "235 (211..236)",
        "ratio": "2.13",
        "aim": "≥ 1.7x",
        "met": "yes",
    }


def test_where_less_is_better_the_best_is_the_least() -> None:
    assert best_peer(SAMPLES, OURS, Row.FIRST_TOKEN) == ("vLLM bf16", Spread(166, 166, 166))
    row = rows()[Row.FIRST_TOKEN]
    assert (row["ratio"], row["aim"], row["met"]) == ("0.72", "≤ 0.7x", "no")


def test_a_bound_of_our_figure_needs_no_peer() -> None:
    row = rows()[Row.SERVING_RSS]
    assert (row["best peer"], row["ratio"], row["met"]) == (NOTHING, NOTHING, "yes")


def test_a_row_that_only_peers_have_is_neither_met_nor_missed() -> None:
    row = rows()[Row.HTTP_32]
    assert (row["Helios"], row["best peer"], row["met"]) == (NOTHING, "llama.cpp q4_0", NOTHING)


def test_rows_without_figures_are_left_out() -> None:
    assert Row.PREFILL not in rows()


@pytest.mark.parametrize(
    ("aim", "ours", "best", "met"),
    [
        (Aim(2.0, of_ratio=True, at_least=True), 200.0, 100.0, True),
        (Aim(2.0, of_ratio=True, at_least=True), 199.0, 100.0, False),
        (Aim(2.0, of_ratio=True, at_least=True), 199.0, None, None),
        (Aim(0.7, of_ratio=True, at_least=False), 70.0, 100.0, True),
        (Aim(0.6, of_ratio=False, at_least=False), 0.61, 9.0, False),
        (Aim(0.6, of_ratio=False, at_least=False), 0.6, None, True),
    ],
)
def test_aims(aim: Aim, ours: float, best: float | None, met: bool | None) -> None:
    assert aim.met(ours, best) is met


def test_every_row_that_is_compared_is_shown_of_everyone() -> None:
    head, *found = everyone(SAMPLES)
    assert head == [
        "",
        "Helios as-stored",
        "Helios bf16",
        "llama.cpp q4_0",
        "onnxruntime-genai int4",
        "vLLM bf16",
    ]
    assert [row[0] for row in found] == [
        Row.DECODE_1,
        Row.HTTP_32,
        Row.FIRST_TOKEN,
        Row.SERVING_RSS,
    ]
    assert found[1] == [Row.HTTP_32, NOTHING, NOTHING, "900", NOTHING, NOTHING]
    assert set(AIMS) <= set(Row)


@pytest.mark.parametrize(
    ("value", "text"), [(1234.4, "1,234"), (100.0, "100"), (25.04, "25.0"), (0.514, "0.51")]
)
def test_figures_show_three_digits(value: float, text: str) -> None:
    assert figure(value) == text


def test_markdown() -> None:
    assert markdown(iter([["", "a"], ["x", "1"]])) == "|  | a |\n| --- | --- |\n| x | 1 |"


class Words:
    """A tokenizer of two letters a token; at the end of a text one letter is a token too."""

    def encode(self, text: str) -> list[int]:
        pieces = [text[i : i + 2] for i in range(0, len(text), 2)]
        return [ord(piece[0]) * 256 + ord(piece[1:] or "\0") for piece in pieces]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(one // 256) + chr(one % 256) for one in tokens).rstrip("\0")


def test_the_second_text_begins_half_a_window_later() -> None:
    text = "".join(chr(97 + i % 26) for i in range(2 * 512 * 4))
    found = passages(text, Words())
    assert found.texts == (text, text[512:])
    assert [len(windows) for windows in found.windows] == [4, 3]
    assert all(len(window) == 512 for window in found.every_window)
    assert found.windows[1][0][:256] == found.windows[0][0][256:]


def test_a_short_text_is_refused() -> None:
    with pytest.raises(SystemExit, match="1536 are the fewest"):
        passages("ab" * 1000, Words())


def test_texts_count_by_their_windows() -> None:
    window = (0,) * 512
    found = Passages(("", ""), ((window,) * 3, (window,)))
    assert found.perplexity([1.0, 3.0]) == pytest.approx(2.718281828**1.5)


FORMS = [
    Form("Helios as-stored", 97, 12.0),
    Form("Helios bf16", 270, 11.9),
    Form("llama.cpp q4_0", 92, 13.0),
    Form("llama.cpp q4_1", 98, 12.1),
    Form("llama.cpp bf16", 269, 11.8),
]


def test_a_form_is_beside_the_smallest_file_of_its_size_or_more() -> None:
    head, reference, *found = table(11.9, FORMS, lambda name: name.startswith(OURS))
    assert head[0] == "storage"
    assert reference[2] == "11.9000"
    by_name = {row[0]: row for row in found}
    assert by_name["Helios as-stored"][4:] == ["llama.cpp q4_1 12.1000", "yes"]
    assert by_name["Helios as-stored"][3] == "+0.84 %"
    assert by_name["Helios bf16"][4:] == [NOTHING, NOTHING]
    assert by_name["llama.cpp q4_0"][4:] == [NOTHING, NOTHING]


@pytest.mark.parametrize(("ours", "met"), [(12.005, "yes"), (12.007, "no")])
def test_what_is_worse_by_chance_is_not_worse(ours: float, met: str) -> None:
    forms = [Form("Helios int8", 9, ours), Form("llama.cpp q8_0", 9, 12.0)]
    *_, mine, _ = table(11.9, forms, lambda name: name.startswith(OURS))
    assert mine[-1] == met


def test_nothing_is_above_the_largest() -> None:
    assert smallest_above(FORMS, 271) is None
    assert smallest_above(FORMS, 270) == FORMS[1]
