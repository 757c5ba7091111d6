"""The policies that simulations compare."""
