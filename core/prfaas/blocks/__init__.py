"""Blocks of prompts: their content hashes, and which prefixes a node holds."""

from prfaas.blocks.prefix import PrefixIndex
from prfaas.blocks.prompt import BLOCK_TOKENS, HashedPrompt

__all__ = ["BLOCK_TOKENS", "HashedPrompt", "PrefixIndex"]
