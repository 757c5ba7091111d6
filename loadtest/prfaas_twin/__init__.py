"""The engine twin: SGLang's HTTP and PD behaviour from a profile, real bytes on real lanes.

`clock`, `scaling`, `kv_shape`, `kv_content`, `prefill_compute` and `decode_compute` are pure: time
comes from a `Clock`. `instance` joins them to lanes and HTTP; `host` runs many in one process.
"""
