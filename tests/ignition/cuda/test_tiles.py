"""The choice of tiles: every number of rows has one, and nothing that decides bits asks for it."""

from __future__ import annotations

import pytest

from ignition.kernels.cuda.tiles import in_groups, narrow, parts, rotated, tile

# (outputs, width, whether the epilogue is f32) of models from 135M to 8B.
MATRICES = [
    (960, 576, False), (576, 576, True), (3072, 576, False), (576, 1536, True),
    (4096, 1024, False), (1024, 2048, True), (6144, 1024, False), (1024, 3072, True),
    (6144, 4096, False), (4096, 4096, True), (28_672, 4096, False), (4096, 14_336, True),
    (151_936, 1024, True),
]  # fmt: skip
ROWS = [1, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 255, 256, 257, 512, 2048, 8191, 8192]


@pytest.mark.parametrize(("outputs", "width", "f32"), MATRICES)
def test_every_number_of_rows_has_a_tile_that_the_kernel_can_run(outputs, width, f32):
    for rows in ROWS:
        chosen = tile(rows, outputs, width, f32=f32)
        # A part is whole blocks.
        assert width % (64 * parts(outputs, width)) == 0
        # A tensor map reads zeros past the last part's end; plain pointers don't.
        whole = width // parts(outputs, width) % chosen.width == 0
        assert whole or (chosen.kernel == "project_many" and parts(outputs, width) == 1)
        # Rows are one operand of wgmma and outputs the other: 64 of the first, 8 of the second.
        first, second = chosen.rows, chosen.outputs
        if not chosen.rows_first:
            first, second = second, first
        assert first % 64 == 0
        assert second % 8 == 0
        shared = chosen.stages * 2 * chosen.width * (chosen.rows + chosen.outputs)
        assert shared <= 232_448


@pytest.mark.parametrize(("outputs", "width", "f32"), MATRICES)
def test_a_grid_covers_the_matrix_and_all_rows(outputs, width, f32):
    for rows in ROWS:
        chosen = tile(rows, outputs, width, f32=f32)
        x, y, z = chosen.grid(rows, outputs, parts(outputs, width), processors=132)
        tiles = -(-rows // chosen.rows) * -(-outputs // chosen.outputs)
        if chosen.kernel == "project_few":
            assert (x * z, y) == (tiles, parts(outputs, width))
        else:
            assert (x, y, z) == (min(tiles, 132) if chosen.flatten else tiles, 1, 1)


def test_large_batches_take_large_tiles_and_single_tokens_narrow_ones():
    narrow = tile(1, 6144, 4096, f32=False)
    assert (narrow.rows_first, narrow.rows) == (False, 16)
    large = tile(8192, 6144, 4096, f32=False)
    assert (large.rows, large.outputs, large.flatten) == (128, 256, True)


@pytest.mark.parametrize(("outputs", "width", "f32"), MATRICES)
def test_narrow_tiles_are_for_few_rows_of_small_matrices(outputs, width, f32):
    for rows in ROWS:
        chosen = narrow(rows, outputs, width)
        if chosen is None:
            assert rows > 128 or outputs * width >= 2**21
            continue
        assert chosen.rows >= min(rows, 64)
        # Rows are the operand of 64 rows, or weights are one of 16 and more.
        assert (chosen.rows if chosen.rows_first else chosen.outputs) in (16, 32, 64)
        assert width // parts(outputs, width) % chosen.width == 0
        x, y, _ = chosen.grid(rows, outputs)
        assert x * chosen.outputs >= outputs
        assert y * chosen.rows >= rows


# Heights of the tiles of groups of warps by (outputs, width), at 256, 512, 2,048 and 8,192 rows of
# an H200; 0 where another kernel was faster there (docs/cuda.md has the figures).
GROUPED = {
    (6144, 4096): (0, 0, 0, 0),
    (4096, 4096): (0, 0, 0, 0),
    (28_672, 4096): (0, 0, 0, 0),
    (4096, 14_336): (0, 0, 0, 0),
    (4096, 1024): (0, 0, 128, 128),
    (1024, 2048): (0, 0, 64, 128),
    (6144, 1024): (0, 64, 128, 128),
    (1024, 3072): (0, 0, 0, 0),
    (960, 576): (0, 0, 0, 0),
    (576, 576): (0, 0, 0, 0),
    (3072, 576): (0, 0, 64, 128),
    (576, 1536): (0, 0, 0, 128),
}


@pytest.mark.parametrize("matrix", GROUPED)
def test_groups_of_warps_are_taken_where_they_were_faster(matrix):
    chosen = [in_groups(rows, *matrix, processors=132) for rows in (256, 512, 2048, 8192)]
    assert tuple(found.rows if found else 0 for found in chosen) == GROUPED[matrix]
    for found in filter(None, chosen):
        shared = found.stages * 2 * found.width * (found.rows + found.outputs)
        assert shared <= 230_000
        assert found.grid(8192, matrix[0], 1, 132)[0] <= 132


def test_groups_of_warps_are_not_taken_where_they_cannot_be():
    assert in_groups(2048, 4096, 1024, 132) is not None
    assert in_groups(2048, 4100, 1024, 132) is None  # rows of outputs aren't whole 16 bytes
    assert in_groups(2048, 4096, 1028, 132) is None  # rows of inputs aren't
    assert in_groups(2048, 4096, 2048, 132) is None  # a large matrix
    assert in_groups(8192, 1024, 4096, 132) is None  # four parts
    assert in_groups(255, 7168, 1024, 132) is None
    assert in_groups(256, 128, 1 << 20, 132) is None  # four tiles


# (outputs, width, head) and the tile that rotates at 256, 512, 2,048 and 8,192 rows: outputs and
# stages, None where launches of their own are as fast or nobody measured others.
ROTATED = {
    (6144, 4096, 128): (None, (256, 3), (256, 3), (256, 3)),
    (960, 576, 64): (None, None, (128, 4), (256, 3)),
    (4096, 1024, 128): (None, (128, 4), None, None),  # groups of warps have the last two
}


@pytest.mark.parametrize("shape", ROTATED)
def test_projections_rotate_where_that_was_faster(shape):
    chosen = [rotated(rows, *shape, processors=132) for rows in (256, 512, 2048, 8192)]
    assert tuple(found and (found.outputs, found.stages) for found in chosen) == ROTATED[shape]
    for found in filter(None, chosen):
        assert (found.kernel, found.rows) == ("project_many", 128)
        assert found.rows_first
        assert found.flatten


def test_projections_rotate_whole_heads_alone():
    assert rotated(8192, 6144, 4096, 256, processors=132) is not None
    assert rotated(2048, 960, 576, 256, processors=132) is None  # half of one
    assert rotated(8192, 1024, 4096, 64, processors=132) is None  # four parts


def test_only_long_reductions_into_few_outputs_are_cut_into_parts():
    assert [parts(n, k) for n, k, _ in MATRICES] == [1, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1]
    assert parts(896, 4864) == 4
    assert parts(1024, 3104) == 1
    assert parts(128, 64) == 1
