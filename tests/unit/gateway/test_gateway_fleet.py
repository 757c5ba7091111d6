import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from prfaas.blocks import HashedPrompt
from prfaas.reasons import Reason
from prfaas.records import NodeRecord, Role, RoutingPolicy
from prfaas_coord import ViewStatus
from prfaas_gateway.errors import RequestError, ServiceError
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.inference import Api, parse_inference
from prfaas_gateway.leg import build_legs


class StaticView:
    def __init__(self, *nodes: NodeRecord, policy: RoutingPolicy | None = None) -> None:
        self.nodes: Mapping[str, NodeRecord] = {node.name: node for node in nodes}
        self.policy = policy
        self.status = ViewStatus(stale=False, synced=True, age_s=0.0, detail="")


def node(name: str, **changes: Any) -> NodeRecord:
    region, role, _ = name.split("-")
    values: dict[str, Any] = {"model_id": "m", "context_tokens": 1000, **changes}
    return NodeRecord(name, Role(role), region, f"http://{name}", "s1", **values)


PREFILL, DECODE = node("b-prefill-0"), node("b-decode-0")


def fleet_of(*nodes: NodeRecord, policy: RoutingPolicy | None = None) -> Fleet:
    return Fleet(StaticView(*nodes, policy=policy), region="b", default_threshold_tokens=7)


async def test_the_snapshot_counts_legs_and_prefixes() -> None:
    fleet = fleet_of(PREFILL, DECODE, node("b-gateway-0"))
    prompt = HashedPrompt.of(range(200))
    fleet.note_prefilled(PREFILL, prompt)
    with fleet.occupy(PREFILL), fleet.occupy(PREFILL), fleet.occupy(DECODE):
        states = {state.record.name: state for state in fleet.states(prompt)}
        assert {name: state.in_flight for name, state in states.items()} == {
            "b-prefill-0": 2,
            "b-decode-0": 1,
        }
    assert states["b-prefill-0"].prefix_tokens == 192
    assert states["b-decode-0"].prefix_tokens == 0
    assert fleet.in_flight() == {}


async def test_prefixes_of_an_earlier_session_are_neither_kept_nor_added() -> None:
    view = StaticView(PREFILL, DECODE)
    fleet = Fleet(view, region="b", default_threshold_tokens=7)
    prompt = HashedPrompt.of(range(200))
    fleet.note_prefilled(PREFILL, prompt)
    restarted = replace(PREFILL, session="s2")
    view.nodes = {node.name: node for node in (restarted, DECODE)}
    assert all(state.prefix_tokens == 0 for state in fleet.states(prompt))
    fleet.note_prefilled(PREFILL, prompt)  # a late answer of the process that is gone
    assert all(state.prefix_tokens == 0 for state in fleet.states(prompt))
    fleet.note_prefilled(restarted, prompt)
    assert any(state.prefix_tokens for state in fleet.states(prompt))


async def test_the_quarantine_of_a_node_that_left_is_forgotten() -> None:
    view = StaticView(PREFILL, DECODE)
    fleet = Fleet(view, region="b", default_threshold_tokens=7)
    fleet.note_unreachable(PREFILL)
    prompt = HashedPrompt.of([1])
    assert any(state.quarantined_until_s for state in fleet.states(prompt))
    view.nodes = {"b-decode-0": DECODE}
    fleet.states(prompt)
    view.nodes = {node.name: node for node in (PREFILL, DECODE)}
    assert not any(state.quarantined_until_s for state in fleet.states(prompt))


def test_the_policy_in_etcd_wins_over_the_configured_threshold() -> None:
    assert fleet_of().policy.threshold_tokens == 7
    assert fleet_of(policy=RoutingPolicy(threshold_tokens=0)).policy.threshold_tokens == 0


def test_find_model() -> None:
    fleet = fleet_of(PREFILL, DECODE)
    assert fleet.find_model("").model_id == fleet.find_model("m").model_id == "m"
    with pytest.raises(RequestError, match="there is: m") as unknown:
        fleet.find_model("x")
    assert unknown.value.reason is Reason.MODEL_NOT_FOUND
    with pytest.raises(ServiceError):
        fleet_of(node("b-gateway-0")).find_model("m")
    with pytest.raises(RequestError, match="one of: m, n"):
        fleet_of(PREFILL, node("b-decode-0", model_id="n")).find_model("")


@pytest.mark.parametrize(
    ("prefill", "decode", "limit"),
    [
        ([1000], [500], 500),
        ([100, 1000], [500], 500),
        ([0], [500], 500),
        ([0], [0], 0),
        ([], [], 0),
    ],
)
def test_the_context_limit_is_what_some_pair_takes(
    prefill: list[int], decode: list[int], limit: int
) -> None:
    nodes = [node(f"b-prefill-{i}", context_tokens=size) for i, size in enumerate(prefill)]
    nodes += [node(f"b-decode-{i}", context_tokens=size) for i, size in enumerate(decode)]
    assert fleet_of(*nodes).context_limit_tokens("m") == limit


def test_missing_says_what_is_lacking() -> None:
    assert fleet_of(PREFILL, DECODE).missing() == []
    assert fleet_of(node("a-prefill-0"), node("a-decode-0")).missing() == [
        "no decode node in region b"
    ]
    assert len(fleet_of().missing()) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_legs_differ_only_in_what_concerns_the_client(stream: bool) -> None:
    raw = json.dumps(
        {
            "prompt": "hi",
            "max_tokens": 3,
            "stream": stream,
            "stream_options": {"include_usage": True},
            "rid": "theirs",
            "bootstrap_room": None,
        }
    )
    request = parse_inference(Api.COMPLETIONS, raw.encode())
    prefill = replace(PREFILL, bootstrap_host="10.0.0.1", bootstrap_port=99)
    legs = build_legs(
        request.body,
        request.decode_body,
        path=request.api,
        prefill=prefill,
        decode=DECODE,
        room=5,
        rid="ours",
    )
    shared = {
        "prompt": "hi",
        "max_tokens": 3,
        "bootstrap_host": "10.0.0.1",
        "bootstrap_port": 99,
        "bootstrap_room": 5,
        "rid": "ours",
    }
    assert json.loads(legs[0].body) == {**shared, "stream": False}
    assert json.loads(legs[1].body) == {
        **shared,
        "stream": stream,
        "stream_options": {"include_usage": True},
    }
