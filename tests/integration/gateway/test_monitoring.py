"""Alert rules and the Grafana dashboard: right by promtool, and of metrics that there are."""

import asyncio
import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from etcd_server import EtcdServer
from fake_agent import FakeAgent
from gateway_world import World
from lane_pair import LanePair
from prometheus_client.parser import text_string_to_metric_families
from tiny_tokenizer import words

from prfaas.config import NodeConfig, NodeSection
from prfaas.records import Role
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.observation_port import observed

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "gateway" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
NAME = re.compile(r"\bprfaas_[a-z_]+")
LABELS = re.compile(r"\b(?:by|on) \(([^)]*)\)|([a-z_]+)\s*=~?\s*\"")
OF_PROMETHEUS = {"instance", "job", "le"}


def alerts() -> Iterator[dict[str, Any]]:
    for group in RULES["groups"]:
        yield from group["rules"]


def expressions() -> list[str]:
    """Return all that the rules and the dashboard ask Prometheus."""
    panels = [
        target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
    ]
    return [alert["expr"] for alert in alerts()] + panels


def promtool(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["promtool", *arguments], cwd=FOLDER, input=text, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_rules_say_what_they_should_and_are_silent_otherwise() -> None:
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")


def test_every_rule_is_tested_both_ways() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    is_calm = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fires == is_calm == {alert["alert"] for alert in alerts()}


def test_a_rule_that_is_wrong_is_found(tmp_path: Path) -> None:
    """The test above can fail."""
    rules = (FOLDER / "alerts.yaml").read_text().replace("up{", "not on(up{", 1)
    (tmp_path / "alerts.yaml").write_text(rules)
    with pytest.raises(AssertionError):
        promtool("check", "rules", str(tmp_path / "alerts.yaml"))


def test_every_alert_has_its_runbook() -> None:
    text = (ROOT / "docs" / "alerts.md").read_text()
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
    for alert in alerts():
        section = sections[alert["alert"]]
        for heading in ("**It means**", "**Look at**", "**Do**"):
            assert heading in section, alert["alert"]
        anchor = f"docs/alerts.md#{alert['alert'].lower()}"
        assert alert["annotations"]["runbook"] == anchor
        assert alert["labels"]["severity"] in ("critical", "warning")
    assert {name for name in sections if name.startswith("Prfaas")} == {
        alert["alert"] for alert in alerts()
    }


def test_the_dashboards_expressions_are_right(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, expr in enumerate(expressions())
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(path))


def test_the_dashboards_panels_stand_side_by_side() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


async def scraped(
    etcd: EtcdServer, model_path: Path, directory: Path
) -> tuple[dict[str, set[str]], str]:
    """Return the names and labels of what a gateway and two agents give, and the gateway's text."""
    world = World(etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    texts = []
    with LanePair(directory) as pair:
        async with world, FakeAgent("a-prefill-0", "b-decode-0") as agent:
            agent.says(rtt_s=0.02, delivery_bytes_per_s=1e8, available_bytes_per_s=1e9, is_up=True)
            await world.add_engine(Role.PREFILL, "a", "a-prefill-0", agent_url=agent.url)
            await world.add_engine(Role.PREFILL, "b", "b-prefill-0")
            await world.add_engine(Role.DECODE, "b", "b-decode-0")
            await world.start_gateway()
            await world.until(world.fleet, lambda fleet: fleet["links"]["a"]["num_paths"] > 0)
            body = {"model": "tiny", "prompt": words(10), "max_tokens": 4, "stream": True}
            async with world.http.post("/v1/completions", json=body) as response:
                await response.read()
            await asyncio.to_thread(pair.transfer, rooms=2)
            gateway = await world.metrics()
            for name, path in (("p", pair.send_socket), ("d", pair.receive_socket)):
                texts.append(await agents_text(name, path))
    found: dict[str, set[str]] = {}
    for text in (gateway, *texts):
        for family in text_string_to_metric_families(text):
            suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
            total = "_total" if family.type == "counter" else ""
            for suffix in suffixes:
                found.setdefault(family.name + total + suffix, set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found, gateway


async def agents_text(name: str, path: Path) -> str:
    stats = EngineStats(path, node=name)
    config = NodeConfig(node=NodeSection(name, Role.PREFILL, "a"))
    async with (
        observed(config, stats) as port,
        asyncio.timeout(20),
        aiohttp.ClientSession() as http,
    ):
        while True:
            async with http.get(f"http://127.0.0.1:{port}/metrics") as response:
                text = await response.text()
            if 'outcome="done"' in text:
                return text
            await stats.wait_changed(1.0)


async def test_rules_and_dashboard_use_only_what_gateways_and_agents_give(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path
) -> None:
    found, text = await scraped(shared_etcd, model_path, tmp_path)
    used = {name for expression in expressions() for name in NAME.findall(expression)}
    assert used - set(found) == set()
    labels = {
        label.strip()
        for expression in expressions()
        for by, one in LABELS.findall(expression)
        for label in (by or one).split(",")
    }
    written = (ROOT / "docs" / "metrics.md").read_text()
    known = OF_PROMETHEUS.union(*found.values())
    unknown = {
        label for label in labels - known if not re.search(rf"\| [a-z, ]*\b{label}\b", written)
    }
    assert unknown == set()
    complaints = promtool("check", "metrics", text=text).splitlines()
    assert [line for line in complaints if "_created" not in line] == []
