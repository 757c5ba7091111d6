"""What `prfaasctl trace show` says of a trace."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from prfaas.workload import Reuse, Trace, prefix_hits
from prfaas.workload.trace import Ints

DEFAULT_CACHE_BLOCKS = (1_000, 10_000, 30_000)

_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_MINUTE_S = 60.0


def show_document(trace: Trace, cache_blocks: Sequence[int], state_blocks: int) -> dict[str, Any]:
    """Return rates, lengths and prefix hit rates as plain JSON values."""
    capacities: list[int | None] = [None, *sorted(set(cache_blocks), reverse=True)]
    return {
        "requests": len(trace),
        "span_s": trace.span_s,
        "rate_per_s": trace.rate_per_s,
        "busiest_minute_per_s": _busiest_minute_per_s(trace),
        "prompt_tokens": _spread(trace.prompt_tokens),
        "output_tokens": _spread(trace.output_tokens),
        "block_tokens": trace.block_tokens,
        "blocks": len(trace.block_hashes),
        "distinct_blocks": len(np.unique(trace.block_hashes)),
        "state_blocks": state_blocks,
        "hits": _hits(trace, capacities, state_blocks) if trace.block_tokens else [],
    }


def show_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the document for a person."""
    from prfaas_cli.output import shown_duration, table

    yield (
        f"{document['requests']} requests in {shown_duration(document['span_s'])}:"
        f" {document['rate_per_s']:.2f}/s, {document['busiest_minute_per_s']:.2f}/s in the busiest"
        " minute"
    )
    names = ("mean", *_QUANTILES)
    lengths = [["tokens", *names]]
    for kind in ("prompt", "output"):
        spread = document[f"{kind}_tokens"]
        lengths.append([kind, *(f"{spread[name]:.0f}" for name in names)])
    yield from table(lengths)
    if not document["hits"]:
        yield "no block hashes, so prefix hits are not known"
        return
    yield (
        f"{document['blocks']} blocks of {document['block_tokens']} tokens,"
        f" {document['distinct_blocks']} distinct; a kept state takes up {document['state_blocks']}"
    )
    yield from table(_hit_rows(document["hits"]))


def _hit_rows(hits: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["cache, blocks", "reuse", "hit rate", "uncached mean", "p50", "p90", "p99"]]
    for hit in hits:
        capacity = "unbounded" if hit["cache_blocks"] is None else str(hit["cache_blocks"])
        spread = hit["uncached_tokens"]
        lengths = [f"{spread[name]:.0f}" for name in ("mean", "p50", "p90", "p99")]
        rows.append([capacity, hit["reuse"], f"{hit['hit_rate']:.1%}", *lengths])
    return rows


def _hits(
    trace: Trace, capacities: Sequence[int | None], state_blocks: int
) -> list[dict[str, Any]]:
    found = []
    for capacity, reuse in product(capacities, Reuse):
        hits = prefix_hits(trace, reuse, capacity_blocks=capacity, state_blocks=state_blocks)
        found.append(
            {
                "cache_blocks": capacity,
                "reuse": str(reuse),
                "hit_rate": hits.hit_rate,
                "uncached_tokens": _spread(hits.uncached_tokens),
            }
        )
    return found


def _spread(tokens: Ints) -> dict[str, float]:
    values = np.quantile(tokens, list(_QUANTILES.values()), method="inverted_cdf")
    spread = dict(zip(_QUANTILES, map(float, values), strict=True))
    return {"mean": float(tokens.mean()), **spread}


def _busiest_minute_per_s(trace: Trace) -> float:
    """Return the highest rate over any minute that begins with an arrival."""
    ends = np.searchsorted(trace.arrival_s, trace.arrival_s + _MINUTE_S, side="left")
    return float((ends - np.arange(len(trace))).max()) / _MINUTE_S
