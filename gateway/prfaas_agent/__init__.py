"""prfaas_agent."""
