"""Reads what the nodes of a soak wrote down, and says what was not as it must be."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

Line = dict[str, Any]
SLACK_S = 2.0
MOST_GROWTH_BYTES = 48 << 20
FULL_RSS_SAMPLES = 200
MOST_BUSY = 0.5
MOST_CALL_S = 2.0


def lines_of(path: Path) -> list[Line]:
    """Return the whole lines of a log; a killed process may have left a part of one."""
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def judge_node(name: str, lines: list[Line], *, was_killed: bool) -> Iterator[str]:
    """Yield what is wrong with one node."""
    closed = next((line for line in lines if line["event"] == "closed"), None)
    if closed is None:
        if not was_killed:
            yield f"{name}: did not close"
        return
    yield from (f"{name}: {problem}" for problem in closed["problems"][:5])
    before, after, rss = closed["before"], closed["after"], closed["rss_bytes"]
    if any(after[what] > before[what] for what in before):
        yield f"{name}: left behind {after}, began with {before}"
    quarter = len(rss) // 4
    if len(rss) > FULL_RSS_SAMPLES:
        growth = median(rss[-quarter:]) - median(rss[quarter : 2 * quarter])
        if growth > MOST_GROWTH_BYTES:
            yield f"{name}: memory grew by {growth / 1e6:.0f} MB"


def judge_tables(name: str, answer: dict[str, Any]) -> Iterator[str]:
    """Yield what a quiet node still holds."""
    left = {key: value for key, value in answer["tables"].items() if value}
    if left:
        yield f"{name}: with no room open it holds {left}"
    if answer["busy"] > MOST_BUSY:
        yield f"{name}: idle, it takes {answer['busy']:.2f} of a core"
    if answer["slowest_call_s"] > MOST_CALL_S:
        yield f"{name}: a call took {answer['slowest_call_s']:.1f} s"


def judge_receiver(name: str, lines: list[Line], timeout_s: float, until_s: float) -> Iterator[str]:
    """Yield the rooms that did not end, or not in time; `until_s` is when the process ended."""
    opened = {line["attempt"]: line for line in lines if line["event"] == "open"}
    ended = Counter(line["attempt"] for line in lines if line["event"] in ("received", "failed"))
    for line in lines:
        if line["event"] in ("received", "failed"):
            took_s = line["at_s"] - opened[line["attempt"]]["at_s"]
            if took_s > timeout_s + SLACK_S:
                yield f"{name}: room {line['room']} took {took_s:.1f} s to end"
    for attempt, line in opened.items():
        if ended[attempt] > 1:
            yield f"{name}: room {line['room']} ended {ended[attempt]} times"
        if not ended[attempt] and until_s - line["at_s"] > timeout_s + SLACK_S:
            yield f"{name}: room {line['room']} did not end within {until_s - line['at_s']:.1f} s"


def judge_sender(
    name: str, lines: list[Line], received: dict[int, set[str]], killed: set[str]
) -> Iterator[str]:
    """Yield the rooms that the sender says were sent, and no receiver says it has."""
    peers: dict[int, set[str]] = defaultdict(set)
    for line in lines:
        if line["event"] == "opened":
            peers[line["room"]].add(line["peer"])
        elif line["event"] == "sent":
            for peer in peers[line["room"]] - killed - received[line["room"]]:
                yield f"{name}: room {line['room']} was sent to {peer}, which has not received it"
        if line["event"] in ("sent", "failed"):
            peers.pop(line["room"], None)


def reasons(all_lines: list[Line]) -> Counter[str]:
    """Count how rooms ended."""
    ends = (line for line in all_lines if line["event"] in ("received", "sent", "failed"))
    return Counter(line.get("reason") or line["event"] for line in ends)
