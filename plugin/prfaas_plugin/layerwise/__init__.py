"""Layer-wise pipelining: a layer's pages are on their way while later layers compute.

`pipeline.LayerPipeline` is what the manager holds; `hooks` connects it to SGLang, `planner` says
per request and prefill chunk what goes where, `ledger` keeps what of a room was planned, and
`readiness` says when a layer's bytes may be read. See docs/decisions/0009-layer-wise.md.
"""
