"""prfaas_cli."""
