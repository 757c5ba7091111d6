import asyncio
from pathlib import Path

from etcd_server import EtcdServer
from fake_engine import expected_words
from gateway_world import World
from tiny_tokenizer import words

from prfaas.records import Role


async def assert_served(world: World, prompt: str, route: str) -> None:
    async with asyncio.timeout(3):
        response, answer = await world.complete(prompt)
    assert response.status == 200, answer
    assert response.headers["x-prfaas-route"] == route
    assert answer["choices"][0]["text"] == " ".join(expected_words(prompt, 4))


async def test_requests_flow_while_etcd_is_away_and_after_it_is_back(
    etcd: EtcdServer, model_path: Path
) -> None:
    async with World(etcd.endpoint, str(model_path), deployment="d") as world:
        await world.start_engines()
        await world.start_gateway()
        await assert_served(world, words(5), "local")
        etcd.kill()
        await world.until_fleet(lambda fleet: fleet["etcd"]["stale"])
        for index in range(3):
            await assert_served(world, words(5, first=index), "local")
            await assert_served(world, words(150, first=100 * index + 200), "offload")
        fleet = await world.fleet()
        assert etcd.endpoint in fleet["etcd"]["detail"]
        assert len(fleet["nodes"]) == 4
        assert "prfaas_etcd_stale 1.0" in await world.metrics()
        async with world.http.get("/ready") as response:
            assert response.status == 200
            assert (await response.json())["etcd_stale"]
        async with world.http.put("/admin/v1/policy", json={"threshold_tokens": 1}) as response:
            assert response.status == 503
            assert (await response.json())["error"]["code"] == "not_ready"
        # A node that dies meanwhile is still listed: dispatch copes.
        await world.prefill_a.stop()
        await assert_served(world, words(160, first=900), "fallback")
        await world.prefill_a.start()
        await etcd.start()
        await world.until_fleet(lambda fleet: not fleet["etcd"]["stale"])
        await world.add_engine(Role.PREFILL, "b", "b-prefill-1")
        await world.until_fleet(lambda fleet: "b-prefill-1" in str(fleet["nodes"]))
        await assert_served(world, words(5), "local")


async def test_etcd_that_lost_its_data_does_not_stop_requests(
    etcd: EtcdServer, model_path: Path
) -> None:
    async with World(etcd.endpoint, str(model_path), deployment="d") as world:
        await world.start_engines()
        await world.start_gateway()
        etcd.kill()
        etcd.lose_data()
        await etcd.start()

        async def healed() -> bool:
            await assert_served(world, words(5), "local")
            counts = [item.status.registrations_total for item in world.registrations.values()]
            return min(counts) >= 2

        await world.until(healed)
        assert len((await world.fleet())["nodes"]) == 4


async def test_a_gateway_started_without_etcd_waits_for_it(
    etcd: EtcdServer, model_path: Path
) -> None:
    etcd.kill()
    async with World(etcd.endpoint, str(model_path), deployment="d") as world:
        await world.start_engines()
        await world.start_gateway(wait=False)
        async with world.http.get("/ready") as response:
            assert response.status == 503
            body = await response.json()
            assert body["etcd_stale"]
            assert body["etcd_detail"]
        response, answer = await world.complete("w1")
        assert response.status == 503
        assert answer["error"]["code"] == "no_decode"
        await etcd.start()
        await world.until_fleet(lambda fleet: len(fleet["nodes"]) == 4)
        await assert_served(world, words(5), "local")
