"""prfaas_gateway."""
