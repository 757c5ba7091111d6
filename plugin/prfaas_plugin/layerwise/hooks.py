"""Where SGLang says that a layer is computed; no file of SGLang is changed.

Three places: `Scheduler.run_batch` brackets a forward; `forward` of the attention backends in use
returns when a layer's KV or state is written, in eager runs and in replays of a prefill graph that
breaks at attention; `UnifiedRadixCache.checkpoint` frees pages. Whatever goes wrong in here is
counted and left to the chunk-wise `send()`: an exception would end the scheduler.

Source: sglang 0.5.23 srt/managers/scheduler.py, srt/layers/radix_attention.py,
srt/layers/radix_linear_attention.py, srt/layers/attention/, srt/mem_cache/unified_radix_cache.py.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.layers.radix_linear_attention import RadixLinearAttention
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from prfaas_plugin.layerwise.entry_map import Kind, LayerKey
from prfaas_plugin.layerwise.forward import Forward
from prfaas_plugin.layerwise.held_frees import HeldFrees
from prfaas_plugin.layerwise.pipeline import LayerPipeline

_RUN_BATCH = "sglang.srt.managers.scheduler.Scheduler.run_batch"
_CHECKPOINT = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.checkpoint"

_MAX_NESTING = 4

_hooked: set[str] = set()


class _Running(threading.local):
    forward: Forward | None = None


_running = _Running()


def install() -> None:
    """Hook what is known before the engine's first batch; may be called again."""
    _hook(_RUN_BATCH, _run_batch)
    _hook(_CHECKPOINT, _checkpoint)


def install_attention(model_runner: Any) -> None:
    """Hook the attention backends that this engine uses; may be called again."""
    for definer in _definers(model_runner.attn_backend):
        _hook(f"{definer.__module__}.{definer.__qualname__}.forward", _attention)


def _hook(target: str, function: Callable[..., Any]) -> None:
    if target not in _hooked:
        _hooked.add(target)
        HookRegistry.register(target, function, HookType.AROUND)
        HookRegistry.apply_hooks()


def _definers(backend: Any, nesting: int = 0) -> Iterator[type]:
    """Yield the classes whose `forward` runs for a backend and those that it wraps."""
    if not isinstance(backend, AttentionBackend) or nesting > _MAX_NESTING:
        return
    yield next(cls for cls in type(backend).__mro__ if "forward" in vars(cls))
    for inner in vars(backend).values():
        yield from _definers(inner, nesting + 1)


def _run_batch(
    original: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **named: Any
) -> Any:
    pipeline = _pipeline_of(scheduler)
    if pipeline is None or not batch.forward_mode.is_extend():
        return original(scheduler, batch, *args, **named)
    # Here and below a broad except is a hook's outermost frame.
    try:
        if pipeline.start(scheduler):
            install_attention(scheduler.tp_worker.model_runner)
        _running.forward = pipeline.forward(batch)
    except Exception as error:
        pipeline.broke(error)
    try:
        result = original(scheduler, batch, *args, **named)
    finally:
        forward, _running.forward = _running.forward, None
    if forward is not None:
        try:
            forward.end()
        except Exception as error:
            pipeline.broke(error)
    return result


def _pipeline_of(scheduler: Any) -> LayerPipeline | None:
    if scheduler.disaggregation_mode != DisaggregationMode.PREFILL:
        return None
    bootstrap = getattr(scheduler, "disagg_prefill_bootstrap_queue", None)
    manager = getattr(bootstrap, "kv_manager", None)
    pipeline: LayerPipeline | None = getattr(manager, "pipeline", None)
    return pipeline


def _attention(original: Callable[..., Any], backend: Any, *args: Any, **named: Any) -> Any:
    forward = _running.forward
    if forward is None:
        return original(backend, *args, **named)
    forward.depth += 1
    try:
        result = original(backend, *args, **named)
    finally:
        forward.depth -= 1
    if not forward.depth:
        try:
            key = layer_key(args, named)
            if key is not None:
                forward.layer_written(key)
        except Exception as error:
            _running.forward = None
            forward.pipeline.broke(error)
    return result


def layer_key(args: tuple[Any, ...], named: dict[str, Any]) -> LayerKey | None:
    """Return the layer that an attention backend's `forward` was called for, if it can be told.

    It is called with a RadixAttention or RadixLinearAttention, by position or by name, and by
    Mamba-2 models with a mixer and a layer number.
    """
    for arg in (named.get("layer"), *args):
        if isinstance(arg, RadixAttention):
            return LayerKey(Kind.ATTENTION, arg.layer_id)
        if isinstance(arg, RadixLinearAttention):
            return LayerKey(Kind.LINEAR, arg.layer_id)
    layer_id = named.get("layer_id")
    return None if layer_id is None else LayerKey(Kind.LINEAR, layer_id)


def _checkpoint(
    original: Callable[..., Any], cache: Any, req: Any, *args: Any, **named: Any
) -> Any:
    sender = getattr(req, "disagg_kv_sender", None)
    pipeline: LayerPipeline | None = getattr(getattr(sender, "kv_mgr", None), "pipeline", None)
    if pipeline is None or req.finished():
        return original(cache, req, *args, **named)
    held = _begin_hold(pipeline, req)
    try:
        result = original(cache, req, *args, **named)
    except BaseException:
        if held is not None:
            held.end(keep=False)
        raise
    if held is not None:
        try:
            pipeline.keep(req.bootstrap_room, held)
        except Exception as error:
            pipeline.abandon(req.bootstrap_room, error)
    return result


def _begin_hold(pipeline: LayerPipeline, req: Any) -> HeldFrees | None:
    try:
        return pipeline.hold(req.bootstrap_room)
    except Exception as error:
        pipeline.abandon(req.bootstrap_room, error)
        return None
