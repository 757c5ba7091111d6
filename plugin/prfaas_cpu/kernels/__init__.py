"""Torch replacements for SGLang's missing CPU kernels, one file per kernel family.

Names of axes: T tokens of all sequences together, B sequences, H heads, K key width, V value width,
P head width, N state width, G groups, W convolution width. States are kept per slot of a pool and
updated in place; a negative slot is padding, whose state is never read or written.
"""
