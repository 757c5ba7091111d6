"""How a prompt says which prefixes it shares with others, cheaply enough for a simulator."""

Chain = tuple[tuple[int, int], ...]
"""Of one prompt, (hash, tokens) pairs: the hash names the first `tokens` tokens of the prompt.

Tokens increase strictly and end at the prompt's length or before it; two prompts that have a hash
in common are equal up to its tokens. What follows the last pair is the prompt's own and cannot be
shared.
"""
