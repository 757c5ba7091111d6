"""`prfaasctl status`: is all well, and if not, what is not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

if TYPE_CHECKING:
    from prfaas_cli.observation import Observed


def status(
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show what runs; exit 0 only if all is well."""
    from prfaas_cli.observation import Observed
    from prfaas_cli.output import Output

    document = describe(Observed.of(Place.of(state_dir, name)))
    Output(as_json=as_json).result(document, lambda: _lines(document))
    if document["problems"]:
        raise typer.Exit(1)


def problems_of(observed: "Observed") -> list[str]:
    """Return everything that is not as it should be, one line each."""
    return list(_problems(observed, observed.supervisor(), observed.nodes()))


def describe(observed: "Observed") -> dict[str, Any]:
    """Return the whole state as plain JSON values."""
    from prfaas_cli.process_plan import api_url

    supervisor = observed.supervisor()
    nodes = observed.nodes()
    ready, why_not = observed.gateway_ready()
    return {
        "name": observed.place.name,
        "directory": str(observed.place.directory),
        "url": api_url(observed.options),
        "supervisor": _process(supervisor),
        "processes": {name: _process(entry) for name, entry in supervisor["processes"].items()},
        "engines": {node: _engine(observed, node) for node in observed.engine_nodes},
        "nodes": None if nodes is None else {name: _node(nodes[name]) for name in sorted(nodes)},
        "gateway": {"ready": ready, "detail": why_not},
        "link": observed.link(),
        "links": observed.links(),
        "problems": list(_problems(observed, supervisor, nodes)),
    }


def _problems(
    observed: "Observed", supervisor: dict[str, Any], nodes: dict[str, Any] | None
) -> Iterator[str]:
    if not supervisor["alive"]:
        yield "the supervisor does not run; run prfaasctl deploy again"
    for spec in observed.specs:
        entry = supervisor["processes"].get(spec.name, {})
        if not entry.get("alive"):
            yield f"{spec.name} does not run: {entry.get('last_exit') or 'never started'}"
    if nodes is None:
        yield "etcd does not answer"
    for node in observed.engine_nodes:
        phase = observed.place.agent_state(node).get("phase", "not up")
        if phase != "serving":
            yield f"the engine of {node} is not serving: {phase}"
        elif nodes is not None and node not in nodes:
            yield f"{node} is not registered"
    ready, why_not = observed.gateway_ready()
    if not ready:
        yield f"the gateway is not ready: {why_not}"
    if observed.link() is None:
        yield "the link emulator does not answer"


def _process(entry: dict[str, Any]) -> dict[str, Any]:
    from prfaas_agent.process import uptime_s
    from prfaas_cli.memory import group_memory_bytes
    from prfaas_cli.processes import process_of

    process = process_of(entry) if entry["alive"] else None
    return {
        "pid": process.pid if process else 0,
        "up_s": round(uptime_s(process), 1) if process else 0.0,
        "restarts": entry.get("restarts", 0),
        "memory_bytes": group_memory_bytes(process) if process else 0,
        "last_exit": entry.get("last_exit", ""),
        "log": entry.get("log", ""),
    }


def _engine(observed: "Observed", node: str) -> dict[str, Any]:
    from prfaas_agent.process import identify, is_alive, uptime_s
    from prfaas_agent.state_file import read_json
    from prfaas_cli.memory import group_memory_bytes
    from prfaas_cli.processes import process_of

    state = observed.place.agent_state(node)
    raw = read_json(observed.place.directory / f"{node}.engine.json") or {}
    process = process_of(raw.get("process"))
    if process is None or not is_alive(process) or identify(process.pid) is None:
        process = None
    return {
        "phase": state.get("phase", "not up"),
        "detail": state.get("detail", ""),
        "starts": state.get("engine_starts", 0),
        "session": raw.get("session", ""),
        "pid": process.pid if process else 0,
        "up_s": round(uptime_s(process), 1) if process else 0.0,
        "memory_bytes": group_memory_bytes(process) if process else 0,
        "log": str(observed.place.log(f"{node}.engine")),
    }


def _node(record: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(record)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from prfaas_cli.output import shown_bytes, shown_duration, table

    rows = [["PROCESS", "PID", "UP", "RESTARTS", "MEMORY", ""]]
    rows += [
        [
            name,
            str(entry["pid"] or "-"),
            shown_duration(entry["up_s"]),
            str(entry["restarts"]),
            shown_bytes(entry["memory_bytes"]),
            entry["last_exit"],
        ]
        for name, entry in {"supervisor": document["supervisor"], **document["processes"]}.items()
    ]
    rows += [
        [
            f"{name} engine",
            str(entry["pid"] or "-"),
            shown_duration(entry["up_s"]),
            str(max(0, entry["starts"] - 1)),
            shown_bytes(entry["memory_bytes"]),
            entry["phase"],
        ]
        for name, entry in document["engines"].items()
    ]
    yield from table(rows)
    yield ""
    yield _nodes_line(document["nodes"])
    ready = "ready" if document["gateway"]["ready"] else "NOT ready"
    yield f"gateway:  {ready} at {document['url']}"
    yield f"link:     {_link_line(document['link'])}"
    for region, link in (document["links"] or {}).items():
        yield f"signals:  from {region}: {signals_line(link)}"
    for problem in document["problems"]:
        yield f"problem:  {problem}"
    yield "" if document["problems"] else "all is well"


def _nodes_line(nodes: dict[str, Any] | None) -> str:
    if nodes is None:
        return "nodes:    unknown, etcd does not answer"
    return f"nodes:    {', '.join(nodes) or 'none'} registered"


def signals_line(link: dict[str, Any]) -> str:
    """Return what the gateway knows of the link from a region, as one line.

    What transfers got says little of a link that they did not fill.
    """
    from prfaas.units import format_duration, format_rate
    from prfaas_cli.output import shown_duration

    signal = link["signal"]
    if signal is None:
        return "none yet" + _rule(link.get("rule", {}))
    state = "up" if signal["up"] else "DOWN"
    if link["is_stale"]:
        state += f" {shown_duration(link['age_s'] or 0.0)} ago"
    rate = link["available_bytes_per_s"]
    carries = format_rate(8 * rate) if rate else "an unknown rate"
    backlog = format_duration(signal["backlog_s"])
    used, again = signal["utilisation"], signal["loss"]
    return (
        f"{state}, {used:.0%} used of {carries} that transfers got of late,"
        f" backlog {backlog}, {again:.1%} sent again{_rule(link.get('rule', {}))}"
    )


def _rule(rule: dict[str, Any]) -> str:
    """Return what follows from a link's state, where that is not what is usual."""
    if rule.get("closed"):
        return "; CLOSED: nothing is offloaded"
    factor = rule.get("threshold_factor", 1.0)
    return f"; full: offloads above {rule['threshold_tokens']} tokens only" if factor > 1 else ""


def _link_line(link: dict[str, Any] | None) -> str:
    from prfaas_netem import LinkSpec

    if link is None:
        return "does not answer"
    ways = [
        f"{way['from']}->{way['to']} {LinkSpec.from_json(way['spec'])}"
        for way in link["directions"]
    ]
    return f"set to {'; '.join(ways)} ({link['backend']}, {link['mode']})"
