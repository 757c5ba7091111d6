"""prfaas_netem."""
