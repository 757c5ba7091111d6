"""Spans of requests: from a gateway before engines to a collector."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdServer
from fake_agent import FakeAgent
from fake_engine import Fault
from gateway_world import World
from otlp_receiver import OtlpReceiver, values
from tiny_tokenizer import words

from prfaas.records import Role

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
Spans = dict[str, dict[str, Any]]


@pytest.fixture
async def collector() -> AsyncIterator[OtlpReceiver]:
    async with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
async def agent() -> AsyncIterator[FakeAgent]:
    async with FakeAgent("a-prefill-0", "b-decode-0") as agent:
        yield agent


@pytest.fixture
async def traced(
    shared_etcd: EtcdServer,
    model_path: Path,
    tmp_path: Path,
    collector: OtlpReceiver,
    agent: FakeAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[World]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url + "/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=us%20two")
    world = World(shared_etcd.endpoint, str(model_path), deployment=f"o{tmp_path.name[-20:]}")
    async with world:
        await world.add_engine(Role.PREFILL, "a", "a-prefill-0", agent_url=agent.url)
        await world.add_engine(Role.PREFILL, "b", "b-prefill-0")
        await world.add_engine(Role.DECODE, "b", "b-decode-0")
        await world.start_gateway()
        yield world


async def ask(world: World, prompt: Any, headers: dict[str, str] | None = None) -> None:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 4, "stream": True}
    async with world.http.post("/v1/completions", json=body, headers=headers) as response:
        assert response.status == 200
        await response.read()


def by_name(spans: list[dict[str, Any]]) -> Spans:
    return {span["name"]: span for span in spans}


async def test_one_request_gives_gateway_prefill_transfer_and_decode_in_one_trace(
    traced: World, collector: OtlpReceiver, agent: FakeAgent
) -> None:
    now_s = time.time()
    agent.rooms["any"] = {
        "opened_at_s": now_s,
        "first_byte_at_s": now_s + 0.1,
        "ended_at_s": now_s + 0.5,
        "bytes": 4096,
        "reason": "",
    }
    await ask(traced, words(500), PARENT)
    spans = by_name(await collector.until(5))
    root, attempt = spans["POST /v1/completions"], spans["attempt 1"]
    assert set(spans) == {root["name"], "attempt 1", "prefill", "decode", "transfer"}
    assert {span["traceId"] for span in spans.values()} == {TRACE_ID}
    assert root["parentSpanId"] == "b7ad6b7169203331"
    assert attempt["parentSpanId"] == root["spanId"]
    for name in ("prefill", "decode", "transfer"):
        assert spans[name]["parentSpanId"] == attempt["spanId"]
    assert values(root["attributes"]) | {"prfaas.request_id": ""} == {
        "http.request.method": "POST",
        "url.path": "/v1/completions",
        "prfaas.request_id": "",
        "http.response.status_code": "200",
        "prfaas.route": "offload",
        "prfaas.attempts": "1",
        "prfaas.reason": "above_threshold",
        "prfaas.prompt_tokens": "500",
    }
    assert values(spans["prefill"]["attributes"])["prfaas.node"] == "a-prefill-0"
    assert values(spans["decode"]["attributes"])["prfaas.region"] == "b"
    assert values(spans["transfer"]["attributes"])["prfaas.bytes"] == "4096"
    assert int(spans["transfer"]["endTimeUnixNano"]) == pytest.approx((now_s + 0.5) * 1e9, abs=1e6)
    for span in spans.values():
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert span["status"] == {"code": 1}
    assert [event["name"] for event in spans["decode"]["events"]] == ["answer begins"]
    assert int(root["endTimeUnixNano"]) >= int(spans["decode"]["endTimeUnixNano"])
    assert root["endTimeUnixNano"] == attempt["endTimeUnixNano"]
    assert agent.told == [str(traced.prefill_a.requests[-1]["bootstrap_room"])]
    assert collector.resources[0]["service.name"] == "prfaas-gateway"
    assert collector.resources[0]["prfaas.gateway"] == "b-gateway-0"
    assert collector.headers[0]["x-tenant"] == "us two"


async def test_engines_hear_of_their_own_spans(traced: World, collector: OtlpReceiver) -> None:
    await ask(traced, words(10))
    spans = by_name(await collector.until(4))
    assert "parentSpanId" not in spans["POST /v1/completions"]
    for name, engine in (("prefill", traced.prefill_b), ("decode", traced.decode_b)):
        span = spans[name]
        assert engine.headers[-1]["traceparent"] == f"00-{span['traceId']}-{span['spanId']}-01"


async def test_a_failed_offload_is_an_attempt_of_its_own_with_an_error(
    traced: World, collector: OtlpReceiver
) -> None:
    traced.prefill_a.faults.append(Fault.HTTP_500)
    await ask(traced, words(500))
    spans = await collector.until(7)
    attempts = [span for span in spans if span["name"].startswith("attempt")]
    assert [values(one["attributes"])["prfaas.route"] for one in attempts] == [
        "offload",
        "fallback",
    ]
    failed = [span for span in spans if span["status"]["code"] == 2]
    assert [values(span["attributes"])["prfaas.node"] for span in failed] == ["a-prefill-0"]
    assert "engine_error" in failed[0]["status"]["message"]


async def test_a_trace_that_the_client_does_not_keep_costs_nothing(
    traced: World, collector: OtlpReceiver
) -> None:
    await ask(traced, words(10), {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-00"})
    await ask(traced, words(20))
    spans = await collector.until(4)
    assert TRACE_ID not in {span["traceId"] for span in spans}
    assert traced.decode_b.headers[0]["traceparent"].endswith("b7ad6b7169203331-00")


async def test_a_collector_that_fails_costs_spans_and_no_request(
    traced: World, collector: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    collector.is_full = True
    await ask(traced, words(10))
    await traced.until(lambda: caplog.text, lambda text: "spans are lost" in text)
    collector.is_full = False
    await ask(traced, words(20))
    assert len(await collector.until(4)) == 4


async def test_without_a_collector_there_are_no_spans(world: World) -> None:
    await ask(world, words(10), PARENT)
    assert world.decode_b.headers[-1]["traceparent"] == PARENT["traceparent"]
