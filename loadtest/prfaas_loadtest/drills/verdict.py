"""What a run of a drill is judged by. Pure: a history in, findings out."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prfaas_loadtest.drills.fault import Fault
from prfaas_loadtest.drills.history import Outcome, Record
from prfaas_loadtest.drills.site import Snapshot
from prfaas_loadtest.drills.spec import Drill

#: A client's clock and a busy machine add so much to a deadline that was kept.
SLACK_S = 2.0
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: whether it holds, and the figures."""

    name: str
    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run left. Times are seconds after the load's begin.

    `right` are the tokens of the undisturbed run by the number of the request. `recovered_s` is
    when all was as before, None if it never was; `troubles` what was not mended or never came back.
    `counted` is how many more requests the gateway counted than before, None if that says nothing;
    `ended_s` when the last fault had been undone.
    """

    drill: Drill
    faults: tuple[Fault, ...]
    planned: int
    records: Sequence[Record]
    right: Mapping[int, tuple[int, ...]]
    before: Snapshot
    after: Snapshot | None
    recovered_s: float | None
    troubles: Sequence[str] = field(default_factory=tuple)
    counted: float | None = None
    ended_s: float = 0.0

    @property
    def over_s(self) -> float:
        """When the last fault was over, which on a busy machine may be later than planned."""
        return max(self.ended_s, *(fault.end_s for fault in self.drill.faults))


def judge(evidence: Evidence) -> list[Finding]:
    """Return all findings, in the order in which a person wants them."""
    return [
        _every_request_ended(evidence),
        _within_deadline(evidence),
        _right_tokens(evidence),
        _none_twice(evidence),
        _share_right(evidence),
        _reasons(evidence),
        _connections(evidence),
        *_seen(evidence),
        *_fallback(evidence),
        *_slowest(evidence),
        _recovery(evidence),
        _baseline(evidence),
    ]


def is_right(record: Record, right: Mapping[int, tuple[int, ...]]) -> bool:
    """Return whether a request was answered, whole and with the tokens of the undisturbed run."""
    return record.outcome is Outcome.ANSWERED and record.tokens == right.get(record.number)


def fallback_times_s(evidence: Evidence) -> list[float]:
    """Return for each fault how long it took until a long request sent since had its answer.

    None of a fault in which no long request was sent; infinite where none was answered.
    """
    found = []
    for fault in evidence.drill.faults:
        since = [r for r in evidence.records if r.is_long and r.sent_s >= fault.at_s]
        if since:
            ends = [r.end_s for r in since if is_right(r, evidence.right)]
            found.append(min(ends, default=float("inf")) - fault.at_s)
    return found


def _every_request_ended(evidence: Evidence) -> Finding:
    silent = [r for r in evidence.records if r.outcome is Outcome.SILENT]
    missing = evidence.planned - len(evidence.records)
    text = f"{len(evidence.records)} of {evidence.planned} requests ended"
    if silent or missing:
        text += f"; {len(silent)} without a word: {_named(silent)}; {missing} unaccounted for"
    return Finding("answered or failed", not silent and not missing, text)


def _within_deadline(evidence: Evidence) -> Finding:
    limit_s = evidence.drill.site.request_timeout_s + SLACK_S
    late = [r for r in evidence.records if r.took_s > limit_s]
    worst_s = max((r.took_s for r in evidence.records), default=0.0)
    text = f"the slowest took {worst_s:.2f} s of {evidence.drill.site.request_timeout_s:g} s"
    return Finding("within the deadline", not late, text + _listed("; late", late))


def _right_tokens(evidence: Evidence) -> Finding:
    """Whatever came must be what the undisturbed run gave: all of it, or its begin."""
    compared = [r for r in evidence.records if r.tokens]
    wrong = [r for r in compared if not _agrees(r, evidence.right.get(r.number))]
    tokens = sum(len(r.tokens) for r in compared)
    text = f"{tokens} tokens of {len(compared)} requests are those of the undisturbed run"
    if wrong:
        text = f"{len(wrong)} of {len(compared)} requests got other tokens: {_named(wrong)}"
    return Finding("tokens equal", not wrong and bool(compared), text)


def _agrees(record: Record, right: tuple[int, ...] | None) -> bool:
    if right is None:
        return False
    if record.outcome is Outcome.ANSWERED:
        return record.tokens == right
    return record.tokens == right[: len(record.tokens)]


def _none_twice(evidence: Evidence) -> Finding:
    twice = [r for r in evidence.records if r.ends > 1 or len(r.tokens) > r.wanted_tokens]
    numbers = Counter(r.number for r in evidence.records)
    again = [number for number, count in numbers.items() if count > 1]
    sent = sum(r.outcome is not Outcome.REFUSED for r in evidence.records)
    text = f"{sent} sent"
    holds = not twice and not again
    if evidence.counted is not None:
        text += f", {evidence.counted:g} counted by the gateway"
        holds = holds and evidence.counted <= sent
    return Finding("none twice", holds, text + _listed("; answered twice", twice))


def _share_right(evidence: Evidence) -> Finding:
    """Requests that the client gave up are no answers that were owed."""
    owed = [r for r in evidence.records if r.outcome is not Outcome.ABANDONED]
    right = sum(is_right(r, evidence.right) for r in owed)
    share = right / len(owed) if owed else 0.0
    wanted = evidence.drill.expect.right_share
    text = f"{right} of {len(owed)} right ({share:.1%}), wanted {wanted:.1%}"
    return Finding("answered right", bool(owed) and share >= wanted, text)


def _reasons(evidence: Evidence) -> Finding:
    failed = [r for r in evidence.records if r.outcome is Outcome.FAILED]
    foreign = [r for r in failed if r.reason not in evidence.drill.expect.reasons]
    counts = Counter(r.reason or str(r.status) for r in failed)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    text = f"failures: {told or 'none'}" + _listed("; not expected", foreign)
    return Finding("failures named", not foreign, text)


def _connections(evidence: Evidence) -> Finding:
    lost = [r for r in evidence.records if r.outcome in (Outcome.CUT, Outcome.REFUSED)]
    allowed = evidence.drill.expect.may_lose_connections
    text = f"{len(lost)} connections lost" + _listed("", [] if allowed else lost)
    return Finding("connections kept", allowed or not lost, text)


def _seen(evidence: Evidence) -> Iterator[Finding]:
    """Without these words the drill would have shown nothing."""
    words = Counter(word for r in evidence.records for word in {r.route, r.reason} if word)
    for word in sorted(evidence.drill.expect.sees):
        yield Finding(f"sees {word}", words[word] > 0, f"{words[word]} requests")


def _fallback(evidence: Evidence) -> Iterator[Finding]:
    limit_s = evidence.drill.expect.fallback_within_s
    times_s = fallback_times_s(evidence)
    if not limit_s:
        return
    worst_s = max(times_s, default=float("inf"))
    text = f"a long request sent since is right after {worst_s:.2f} s, allowed {limit_s:g} s"
    yield Finding("fallback", worst_s <= limit_s, text)


def _slowest(evidence: Evidence) -> Iterator[Finding]:
    limit_s = evidence.drill.expect.slowest_s
    if not limit_s:
        return
    worst_s = max((r.took_s for r in evidence.records if is_right(r, evidence.right)), default=0.0)
    text = f"the slowest right answer took {worst_s:.2f} s, allowed {limit_s:g} s"
    yield Finding("latency", worst_s <= limit_s, text)


def _recovery(evidence: Evidence) -> Finding:
    limit_s = evidence.drill.expect.recovery_within_s
    if evidence.recovered_s is None:
        return Finding("recovery", False, "; ".join(evidence.troubles) or "never as before")
    took_s = max(0.0, evidence.recovered_s - evidence.over_s)
    text = f"as before {took_s:.2f} s after the last fault, allowed {limit_s:g} s"
    return Finding("recovery", took_s <= limit_s, text + _words("; ", evidence.troubles))


def _baseline(evidence: Evidence) -> Finding:
    if evidence.after is None:
        return Finding("baseline", False, "the site's state could not be told")
    differences = evidence.before.differences(evidence.after)
    count = len(evidence.before.values)
    text = f"{count} values, {len(evidence.before.pairs)} pairs of peers,"
    text += f" {len(evidence.before.nodes)} nodes, {evidence.before.leases} leases are as before"
    return Finding("baseline", not differences, "; ".join(differences[:8]) or text)


def _named(records: Sequence[Record]) -> str:
    shown = [f"#{r.number} ({r.outcome}, {r.status}: {r.detail[:80]})" for r in records[:_SHOWN]]
    more = len(records) - _SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _listed(head: str, records: Sequence[Record]) -> str:
    return f"{head}: {_named(records)}" if records else ""


def _words(head: str, words: Sequence[str]) -> str:
    return head + "; ".join(words) if words else ""
