"""The serving contract: decoding and validation into frozen dataclasses.

`decode` is the one way in; `model` holds the dataclasses, `enums` the enumerations.
"""

from helios.contract.decoder import decode
from helios.contract.model import PreparedContract

__all__ = ["PreparedContract", "decode"]
