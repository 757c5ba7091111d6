import json

import pytest

from prfaas.transfer.node_signals import MAX_PEERS, NodeSignals
from prfaas.transfer.signals import Congestion, PeerSignals

SIGNALS = PeerSignals(
    rtt_s=0.021,
    min_rtt_s=0.02,
    retransmit_share=0.01,
    delivery_bytes_per_s=1e9,
    available_bytes_per_s=2e9,
    utilisation=0.5,
    backlog_bytes=1 << 30,
    backlog_s=0.5,
    busy_share=1.0,
    rwnd_limited_share=0.1,
    sndbuf_limited_share=0.2,
    congestion=Congestion.BUILDING,
    is_up=False,
    is_link_limited=True,
)


def test_a_line_says_all_that_was_known() -> None:
    said = NodeSignals("a-prefill-0", 0.25, {"b-decode-0/0": SIGNALS})
    assert NodeSignals.from_line(said.to_line()) == said
    unknown = NodeSignals("a-prefill-0", None, {})
    assert NodeSignals.from_line(unknown.to_line()) == unknown


def test_what_another_version_says_more_or_less_does_not_matter() -> None:
    line = b'{"node": "n", "new": 1, "peers": {"p": {"rtt_s": 1, "new": []}}}\n'
    assert NodeSignals.from_line(line) == NodeSignals("n", None, {"p": PeerSignals(rtt_s=1.0)})


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {"peers": {}},
        {"node": 3, "peers": {}},
        {"node": "n"},
        {"node": "n", "peers": []},
        {"node": "n", "peers": {"p": 1}},
        {"node": "n", "peers": {}, "age_s": -1},
        {"node": "n", "peers": {}, "age_s": "1"},
        {"node": "n", "peers": {"p": {"rtt_s": float("nan")}}},
        {"node": "n", "peers": {"p": {"rtt_s": float("inf")}}},
        {"node": "n", "peers": {"p": {"rtt_s": True}}},
        {"node": "n", "peers": {"p": {"backlog_bytes": -1}}},
        {"node": "n", "peers": {"p": {"utilisation": 1.01}}},
        {"node": "n", "peers": {"p": {"congestion": "dreadful"}}},
        {"node": "n", "peers": {"p": {"is_up": 1}}},
        {"node": "n", "peers": {"p": {"is_link_limited": None}}},
        {"node": "n", "peers": {"p": {"rtt_s": 10**400}}},
        {"node": "n", "peers": {"x" * 129: {}}},
        {"node": "n", "peers": {str(number): {} for number in range(MAX_PEERS + 1)}},
    ],
)
def test_what_is_no_line_of_ours_is_refused(raw: object) -> None:
    with pytest.raises(ValueError):
        NodeSignals.from_line(json.dumps(raw).encode())
