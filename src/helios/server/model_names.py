"""Whether a request names the model that there is."""

from __future__ import annotations

from helios.server.failures import ApiError
from helios.server.lifecycle import ServedModel


def check_model(name: str, model: ServedModel) -> None:
    """Raises ApiError 404 for a name that isn't one of the model's."""
    if name not in model.names:
        raise ApiError(
            404,
            f"there is no model {name!r}. This server has {', '.join(model.names)}",
            code="model_not_found",
            param="model",
        )
