"""prfaas_cpu."""
