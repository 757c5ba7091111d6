"""Prompts whose lengths cover the edges: page, chunk, window, checkpoint, thousands of tokens."""

import random

VOCABULARY = 512
SPECIAL_TOKENS = 3

#: Twenty lengths in tokens; 512 is the chunked prefill size, 64 a window and a block.
LENGTHS = (5, 9, 17, 33, 63, 64, 65, 128, 200, 256, 300, 400, 511, 512, 513, 700, 1000, 1025)
LENGTHS += (1500, 2300)


def token_prompts(seed: int = 1) -> list[list[int]]:
    """Return twenty prompts of token ids without special tokens, the same ones every time."""
    rng = random.Random(seed)
    return [[rng.randrange(SPECIAL_TOKENS, VOCABULARY) for _ in range(n)] for n in LENGTHS]
