"""A gateway's overview as lines for a terminal."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from prfaas.units import format_duration, format_rate
from prfaas_cli.output import shown_bytes, shown_duration, table

_MAX_REASONS = 8

Json = dict[str, Any]


def lines(view: Json, problem: str = "") -> Iterator[str]:
    """Return the lines, the most important first; `problem` says why the view is old."""
    for line in _lines(view, problem):
        # Names come over the network: what is no character would move the terminal's cursor.
        yield "".join(char if char.isprintable() else "?" for char in line)


def _lines(view: Json, problem: str) -> Iterator[str]:
    state = _state(view, problem)
    where = f"gateway {view['gateway']} in region {view['region']}"
    yield f"{view['deployment']}: {where}, {_clock(view['at_s'])}, {state}"
    yield _requests(view)
    yield _threshold(view)
    for link in view["links"]:
        yield f"link from {link['from']}: {link_line(link)}"
    for part in (_nodes(view["regions"]), _reasons(view["requests"]), _decisions(view)):
        if len(part) > 1:
            yield ""
            yield from table(part)


def _state(view: Json, problem: str) -> str:
    if problem:
        return f"STALE: {problem}"
    if view["etcd"]["stale"]:
        return "STALE: etcd does not answer"
    return f"NOT READY: {', '.join(view['missing'])}" if view["missing"] else "live"


def _requests(view: Json) -> str:
    requests, ttft = view["requests"], view["ttft"]
    per_s = sum(requests["per_s"].values())
    away = requests["per_s"].get("offload", 0.0) / per_s if per_s else 0.0
    return (
        f"requests: {per_s:.2f}/s, {away:.0%} offloaded, {requests['errors_per_s']:.2f}/s failed,"
        f" {view['in_flight']} being served; first token after {_seconds(ttft['p50_s'])} (median),"
        f" {_seconds(ttft['p99_s'])} (99%)"
    )


def _threshold(view: Json) -> str:
    plan = view["plan"]
    version = f"version {plan['version']}" if plan["version"] else "none"
    leads = "this gateway" if plan["is_leader"] else plan["leader"] or "none"
    pinned = ", pinned" if plan["pinned"] else ""
    full = f"; fullest stage: {plan['bottleneck']}" if plan["bottleneck"] else ""
    tokens = view["threshold_tokens"]
    return f"threshold: {tokens} tokens; plan: {version}{pinned}; leader: {leads}{full}"


def link_line(link: Json) -> str:
    """Return one link, all that is known of it."""
    state = link["state"] if link["up"] is not False else f"{link['state']}, DOWN"
    if link["is_stale"]:
        age_s = link["age_s"]
        state += ", nothing known yet" if age_s is None else f", STALE for {shown_duration(age_s)}"
    limit = link["threshold_tokens"]
    return (
        f"{state}; {_rate(link['delivery_bytes_per_s'])} of"
        f" {_rate(link['available_bytes_per_s'])}, rtt {_seconds(link['rtt_s'])},"
        f" {_share(link['loss'])} sent again,"
        f" backlog {shown_bytes(link['backlog_bytes'])} {_seconds(link['backlog_s'])};"
        f" {link['mode']}; offloads above {'no length' if limit is None else f'{limit} tokens'}"
    )


def _nodes(regions: list[Json]) -> list[list[str]]:
    rows = [["REGION", "NODE", "ROLE", "HEALTH", "SHARE", "LEGS", "BACKLOG", "TOLD"]]
    for region in regions:
        rows += [
            [
                region["name"],
                node["name"],
                node["role"],
                node["health"],
                f"{node['share']:.0%}",
                str(node["in_flight"]),
                str(node["backlog_tokens"]),
                _seconds(node["signals_age_s"]),
            ]
            for node in region["nodes"]
        ]
    return rows


def _reasons(requests: Json) -> list[list[str]]:
    rows = [["ROUTE", "REASON", "STATUS", "LAST MINUTE"]]
    return rows + [
        [one["route"], one["reason"], str(one["code"]), str(one["count"])]
        for one in requests["ended"][:_MAX_REASONS]
    ]


def _decisions(view: Json) -> list[list[str]]:
    rows = [["TIME", "REQUEST", "ROUTE", "REASON", "TOKENS", "CACHED", "PREFILL", "DECODE"]]
    return rows + [
        [
            _clock(noted["at_s"]),
            noted["request_id"][:12],
            noted["route"],
            noted["reason"],
            str(noted["prompt_tokens"]),
            str(noted["prefix_tokens"]),
            noted["prefill"] or "-",
            noted["decode"] or "-",
        ]
        for noted in view["decisions"]
    ]


def _clock(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s).strftime("%H:%M:%S")  # noqa: DTZ006 - local


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return format_duration(value) if value < 1 else shown_duration(value)


def _rate(bytes_per_s: float | None) -> str:
    return "an unknown rate" if bytes_per_s is None else format_rate(8 * bytes_per_s)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
