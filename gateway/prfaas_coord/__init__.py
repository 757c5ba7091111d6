"""prfaas_coord."""
