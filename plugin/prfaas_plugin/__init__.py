"""prfaas_plugin."""
