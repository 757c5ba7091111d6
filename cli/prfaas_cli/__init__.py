"""`prfaasctl`: one module per noun; `main` is the entry, `supervisor` the daemon of a deploy."""
