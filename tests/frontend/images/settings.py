"""Image settings as cores declare them."""

from __future__ import annotations

from helios.contract.model import ImageSettings


def settings(
    patch: int = 14, least: int = 3136, most: int = 28 * 28 * 16384, *, plain: bool = False
) -> ImageSettings:
    """Settings with feature id 9 and the ids 7 and 8 around it."""
    return ImageSettings(
        feature_ids=(9,),
        atomic_spans=(7, 8),
        patch_size=patch,
        merge_size=2,
        min_pixels=least,
        max_pixels=most,
        mean=() if plain else (0.4815, 0.4578, 0.4082),
        std=() if plain else (0.2686, 0.2613, 0.2758),
    )
