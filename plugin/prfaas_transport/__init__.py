"""prfaas_transport."""
