"""A tokenizer with some twenty thousand tokens: masks cost what a vocabulary has."""

from __future__ import annotations

import functools
import itertools
import string

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from helios.frontend.tokenizer import Tokenizer

EOS = "<|eos|>"


@functools.cache
def wide_tokenizer() -> Tokenizer:
    """Bytes, all pairs and triples of small letters, with a space before them too; one end."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = string.ascii_lowercase
    merges = [
        *itertools.product(letters, letters),
        *(
            (pair[0] + pair[1], last)
            for *pair, last in itertools.product(letters, letters, "aeinost")
        ),
        *(("Ġ", first) for first in letters),
        *((f"Ġ{first}", second) for first, second in itertools.product(letters, letters)),
        *(("1", digit) for digit in string.digits),
        ('"', ","),
        ('"', ":"),
        ("{", '"'),
    ]
    tokens = dict.fromkeys([*alphabet, *(left + right for left, right in merges)])
    library = Library(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges)
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(EOS, special=True, normalized=False)])
    return Tokenizer(library.to_str().encode())
