"""The node agent: starts, watches and registers one SGLang engine.

`agent.run_agent` is the entry; `sglang_args` is the one table of SGLang's arguments; `process`
names processes so that a reused process id is never signalled.
"""
