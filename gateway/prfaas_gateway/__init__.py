"""The gateway: an OpenAI-compatible front that routes every request by its uncached length.

`run_gateway` is what `prfaasctl node run gateway` runs:

```
with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(run_gateway(config))
```
"""

from prfaas_gateway.server import new_event_loop, run_gateway, serving

__all__ = ["new_event_loop", "run_gateway", "serving"]
