"""Twins on real lanes: the same tokens on every route, other ones where a byte is wrong."""

import asyncio
import contextlib
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deployment import wait_until
from twin_engines import TwinProcess, inject, running, start_twins, twin_config

from prfaas.blocks import HashedPrompt
from prfaas.config import NodeConfig
from prfaas.records import Role
from prfaas.twin_section import TwinSection
from prfaas_cpu.models import default_models_dir
from prfaas_transport import read_stats
from prfaas_transport.event_socket import EventReader
from prfaas_twin.ask import Api
from prfaas_twin.decode_role import DecodeRole
from prfaas_twin.host import hosting, read_model
from prfaas_twin.kv_content import token_at

MODEL = default_models_dir() / "qwen3-tiny"
TWIN = TwinSection(dilation=0.02, scale=2000)
TOKENS = 12
rooms = count(1)


@dataclass(frozen=True)
class Rig:
    """Prefills of two speeds and of broken ones, and the decode they serve."""

    near: TwinProcess
    far: TwinProcess
    no_kv: TwinProcess
    no_state: TwinProcess
    decode: TwinProcess


def config(name: str, role: Role, folder: Path, **changes: Any) -> NodeConfig:
    twin = changes.pop("twin", TWIN)
    return twin_config(name, role, model=MODEL, state_dir=folder, twin=twin, **changes)


def start(name: str, role: Role, folder: Path, **changes: Any) -> TwinProcess:
    return start_twins(config(name, role, folder, **changes))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("twins")
    far = replace(TWIN, profile="paper-1t-h200")
    configs = (
        config("near", Role.PREFILL, folder),
        config("far", Role.PREFILL, folder, twin=far),
        config("no-kv", Role.PREFILL, folder, blank_groups=("kv",)),
        config("no-state", Role.PREFILL, folder, blank_groups=("state",)),
        config("decode", Role.DECODE, folder),
    )
    process = start_twins(*configs)
    with running(process):
        yield Rig(*(replace(process, configs=(each,)) for each in configs))


def post(url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"{}")


def generate(
    prefill: TwinProcess, decode: TwinProcess, prompt: list[int], *, tokens: int = TOKENS
) -> dict[str, Any]:
    """Send both legs and return the decode's answer."""
    body = {
        "input_ids": prompt,
        "sampling_params": {"max_new_tokens": tokens},
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": next(rooms),
    }
    with ThreadPoolExecutor(1) as pool:
        leg = pool.submit(post, f"{prefill.url}/generate", body)
        status, answer = post(f"{decode.url}/generate", body)
        assert leg.result()[0] == status == 200, answer
    return answer


def expected(prompt: list[int], decode: TwinProcess, tokens: int = TOKENS) -> list[int]:
    """Return the tokens that follow from the prompt alone: what an oracle says."""
    model = read_model(decode.configs[0])
    hashed = HashedPrompt.of(prompt, namespace=f"{model.model_id}\0\0")
    seed = model.content.seed(hashed)
    return [token_at(seed, position, model.vocabulary.spoken) for position in range(tokens)]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 1000, 1024, 9000, 60_000])
def test_the_tokens_are_the_same_on_every_route_and_every_time(rig: Rig, length: int) -> None:
    """Computed near or far, whole or from a cached prefix: as the prompt says."""
    prompt = [(length + position) % 500 for position in range(length)]
    wanted = expected(prompt, rig.decode)
    for prefill in (rig.near, rig.far, rig.near):
        answer = generate(prefill, rig.decode, prompt)
        assert answer["output_ids"] == wanted
    longer = [*prompt, *range(100)]
    again = generate(rig.near, rig.decode, longer)
    assert again["meta_info"]["cached_tokens"] == length
    assert again["output_ids"] == expected(longer, rig.decode)


def test_many_at_once_get_their_own_tokens(rig: Rig) -> None:
    prompts = [[number, *range(200 + 97 * number)] for number in range(60)]
    with ThreadPoolExecutor(60) as pool:
        answers = list(
            pool.map(
                lambda pair: generate(rig.near if pair[0] % 2 else rig.far, rig.decode, pair[1]),
                enumerate(prompts),
            )
        )
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer["output_ids"] == expected(prompt, rig.decode)


def test_a_lost_group_changes_every_answer(rig: Rig) -> None:
    prompt = list(range(500))
    wanted = expected(prompt, rig.decode)
    for prefill in (rig.no_kv, rig.no_state):
        wrong = generate(prefill, rig.decode, prompt)["output_ids"]
        assert sum(a != b for a, b in zip(wrong, wanted, strict=True)) >= TOKENS - 2


def test_what_crosses_is_the_profiles_bytes_over_the_scale(rig: Rig) -> None:
    model = read_model(rig.decode.configs[0])
    node = rig.far.configs[0].node
    path = Path(node.state_dir) / f"{node.name}.stats.sock"
    for tokens in (3000, 50_000):
        before = read_stats(path)["payload_bytes_sent_total"]
        generate(rig.far, rig.decode, [tokens % 499] * tokens, tokens=1)
        moved = read_stats(path)["payload_bytes_sent_total"] - before
        assert moved == model.shape.prompt_bytes(tokens) + 32
        assert moved * TWIN.scale == pytest.approx(model.profile.kv_bytes.at(tokens), rel=0.015)


def test_a_twin_that_hangs_is_unhealthy_and_goes_on_after(rig: Rig) -> None:
    url = f"{rig.near.url}/health"
    inject(rig.near, stall_s=1.0)
    began_s = time.monotonic()
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.status == 200
    assert 0.5 < time.monotonic() - began_s < 5
    assert inject(rig.near) == {"slowness": 1.0, "stalled": False}


def test_an_injected_slowness_makes_prefills_so_much_slower(rig: Rig) -> None:
    def took_s(prompt: list[int]) -> float:
        return float(generate(rig.near, rig.decode, prompt, tokens=1)["meta_info"]["e2e_latency"])

    normal_s = took_s([7] * 30_000)
    inject(rig.near, slowness=20.0)
    try:
        slow_s = took_s([8] * 30_000)
    finally:
        assert inject(rig.near, slowness=1.0)["slowness"] == 1.0
    assert (
        slow_s - normal_s
        > 0.8 * 19 * read_model(rig.near.configs[0]).profile.prefill_s.at(30_000) * TWIN.dilation
    )


def test_wrong_faults_are_refused(rig: Rig) -> None:
    for fault in ({"slowness": 0}, {"slowness": "x"}, {"stall_s": -1}, {"explode": True}):
        assert "error" in inject(rig.near, **fault)


def test_peers_of_another_scale_are_refused(rig: Rig, tmp_path: Path) -> None:
    other = start("other", Role.PREFILL, tmp_path, twin=replace(TWIN, scale=1999))
    with running(other):
        body = {"input_ids": [5, 6, 7], "bootstrap_host": "127.0.0.1", "bootstrap_room": 4711}
        body["bootstrap_port"] = other.bootstrap_port
        status, answer = post(f"{rig.decode.url}/generate", body)
        assert status == 500
        assert "layout_mismatch" in answer["message"]


def test_a_killed_prefill_fails_its_rooms_and_its_next_life_is_used(tmp_path: Path) -> None:
    own = config("p", Role.PREFILL, tmp_path)
    prefill, decode = start_twins(own), start("d", Role.DECODE, tmp_path)
    with running(prefill, decode):
        generate(prefill, decode, [5] * 100)
        inject(prefill, stall_s=60.0)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(_decode_leg, prefill, decode)
            time.sleep(0.3)
            inject(prefill, crash=True)
            status, answer = asked.result()
        assert status == 500
        assert "lanes_lost" in answer["message"]
        assert prefill.process.wait(5) == 137
        again = start_twins(own)
        with running(again):
            assert generate(again, decode, [5] * 100)["output_ids"] == expected([5] * 100, decode)


def _decode_leg(prefill: TwinProcess, decode: TwinProcess) -> tuple[int, dict[str, Any]]:
    body = {"input_ids": [5] * 50, "bootstrap_host": "127.0.0.1", "bootstrap_room": next(rooms)}
    return post(f"{decode.url}/generate", {**body, "bootstrap_port": prefill.bootstrap_port})


def test_sigterm_lets_running_requests_end(tmp_path: Path) -> None:
    """And says on the way that it takes no more."""
    slow = replace(TWIN, dilation=1.0)
    prefill = start("p", Role.PREFILL, tmp_path)
    decode = start("d", Role.DECODE, tmp_path, twin=slow)
    with running(prefill, decode), ThreadPoolExecutor(2) as pool:
        asked = pool.submit(generate, prefill, decode, [5] * 100, tokens=60)
        wait_until(lambda: _running(decode) == 1, timeout_s=10, what="it decodes")
        ended = pool.submit(decode.terminate)
        wait_until(lambda: _health(decode) == 503, timeout_s=5, what="it says that it stops")
        assert len(asked.result()["output_ids"]) == 60
        assert ended.result() == 0


def _running(twin: TwinProcess) -> int:
    with urllib.request.urlopen(f"{twin.url}/v1/loads", timeout=5) as answer:
        return int(json.load(answer)["loads"][0]["num_running_reqs"])


def _health(twin: TwinProcess) -> int:
    try:
        with urllib.request.urlopen(f"{twin.url}/health", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_twins_change_roles_when_idle_and_only_then(tmp_path: Path) -> None:
    twins = [
        start(name, role, tmp_path, role_switch=True)
        for name, role in (("x", Role.PREFILL), ("y", Role.DECODE))
    ]
    x, y = twins
    with running(x, y):
        wanted = generate(x, y, [5] * 300)["output_ids"]
        inject(x, stall_s=30.0)
        with ThreadPoolExecutor(1) as pool:
            leg = pool.submit(generate, x, y, [6] * 300)
            time.sleep(0.3)
            status, said = post(f"{x.url}/pd_role_switch", {"new_role": "decode"})
            assert (status, said["safe_to_restore"]) == (400, True)
            assert said["message"] == "instance is not idle; drain all requests before switching"
            inject(x, stall_s=0.0)
            leg.result()
        for twin, role in ((x, "decode"), (y, "prefill")):
            status, said = post(f"{twin.url}/pd_role_switch", {"new_role": role})
            assert (status, said["success"], said["new_role"]) == (200, True, role)
        assert generate(y, x, [5] * 300)["output_ids"] == wanted
        status, said = post(f"{x.url}/pd_role_switch", {"new_role": "decode"})
        assert (status, said["success"]) == (200, True), "it has the role already"


async def test_one_wrong_byte_in_a_decodes_memory_changes_the_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [
        config(name, role, tmp_path) for name, role in (("p", Role.PREFILL), ("d", Role.DECODE))
    ]
    read = DecodeRole._read

    def read_damaged(self: DecodeRole, generation: Any, memory: Any) -> Any:
        ((first, _), *_) = memory.kv
        self._arrays["kv"][3][first * self._model.shape.item_bytes + 5] ^= 1
        return read(self, generation, memory)

    async with hosting(configs) as (prefill, decode):
        whole = await _in_process(prefill, decode)
        monkeypatch.setattr(DecodeRole, "_read", read_damaged)
        damaged = await _in_process(prefill, decode)
    differ = sum(a != b for a, b in zip(whole, damaged, strict=True))
    assert differ >= TOKENS - 2


def _ask(prefill: Any, prompt: list[int]) -> bytes:
    body = {
        "input_ids": prompt,
        "sampling_params": {"max_new_tokens": TOKENS},
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": prefill.model.config.engine.bootstrap_port,
        "bootstrap_room": next(rooms),
    }
    return json.dumps(body).encode()


async def _in_process(prefill: Any, decode: Any) -> list[int]:
    raw = _ask(prefill, [9] * 800)
    legs = [twin.start_generation(twin.read(Api.GENERATE, raw)) for twin in (prefill, decode)]
    async with asyncio.timeout(20):
        for leg in legs:
            await leg.changed(0)
            assert leg.finish is not None
            assert leg.finish.type == "length", leg.finish
    return list(legs[1].output_ids)


async def test_requests_that_are_given_up_anywhere_leave_nothing_behind(tmp_path: Path) -> None:
    """Hundreds of them, at any moment, in queues that are full."""
    small = replace(TWIN, max_running_requests=2, dilation=0.005, kv_pool_bytes=1 << 16)
    rng = random.Random(6)
    async with hosting(
        [config("p", Role.PREFILL, tmp_path), config("d", Role.DECODE, tmp_path, twin=small)]
    ) as twins:
        prefill, decode = twins
        free = {name: pool.num_free for name, pool in decode.role._pools.items()}

        async def one(number: int) -> None:
            ask = _ask(prefill, [number % 500] * rng.randrange(1, 3000))
            legs = [
                twin.start_generation(twin.read(Api.GENERATE, ask))
                for twin in rng.sample(twins, rng.choice((1, 2, 2, 2)))
            ]
            await asyncio.sleep(rng.random() * 1.5)
            for leg in legs:
                if leg.finish is None:
                    (prefill if leg in prefill.role._running else decode).drop(leg)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(one(number))
        await asyncio.gather(prefill.role.idle(), decode.role.idle())
        assert prefill.role.requests == decode.role.requests == 0
        assert {name: pool.num_free for name, pool in decode.role._pools.items()} == free
        assert len(prefill.role._free_aux) == 4096
        assert not prefill.role._jobs
        assert not prefill.role._stages
        assert not decode.role._received
        assert not decode.role._queue
        assert await _in_process(prefill, decode) == await _in_process(prefill, decode)


async def test_a_room_is_one_requests_own(tmp_path: Path) -> None:
    configs = [config("p", Role.PREFILL, tmp_path), config("d", Role.DECODE, tmp_path)]
    async with hosting(configs) as twins:
        raw = _ask(twins[0], [9] * 800)
        first, second = (
            [twin.start_generation(twin.read(Api.GENERATE, raw)) for twin in twins]
            for _ in range(2)
        )
        async with asyncio.timeout(20):
            for leg in (*first, *second):
                await leg.changed(0)
        assert [leg.finish.type for leg in first] == ["length", "length"]  # type: ignore[union-attr]
        assert [leg.finish.type for leg in second] == ["abort", "abort"]  # type: ignore[union-attr]


@pytest.mark.parametrize("stateful", [True, False])
def test_cache_events_tell_what_a_prompt_will_find(tmp_path: Path, stateful: bool) -> None:
    """A mirror of the events knows every hit before it happens; what goes is told too."""
    twin = replace(TWIN, stateful=stateful, chunk_tokens=256, cache_tokens=6400)
    own = config("p", Role.PREFILL, tmp_path, twin=twin)
    assert own.engine is not None
    own = replace(own, engine=replace(own.engine, cache_events=True))
    process = start_twins(own, config("d", Role.DECODE, tmp_path))
    rng = random.Random(8)
    reader = EventReader(tmp_path / "p.events.sock")
    with running(process), contextlib.closing(reader):
        prefill, decode = (replace(process, configs=(each,)) for each in process.configs)
        reader.connect()
        prompts: list[list[int]] = [[1] * 100]
        hits = []
        for _ in range(25):
            old = rng.choice(prompts)
            new = [rng.randrange(500) for _ in range(rng.randrange(1, 900))]
            prompt = old[: rng.choice((64, len(old)))] + new
            prompts = [*prompts[-8:], prompt]
            foreseen = reader.mirror.reusable_tokens(prompt)
            meta = generate(prefill, decode, prompt, tokens=1)["meta_info"]
            assert meta["cached_tokens"] == foreseen
            hits.append(foreseen)
            list(reader.catch_up(quiet_s=0.1))
        assert reader.mirror.num_blocks <= 100
        assert len({hit for hit in hits if hit}) > 3
        with urllib.request.urlopen(f"{prefill.url}/flush_cache", timeout=5) as answer:
            assert answer.status == 200
        list(reader.catch_up(quiet_s=0.5))
        assert reader.mirror.num_blocks == 0


def test_many_twins_in_one_process_and_one_that_dies_alone(tmp_path: Path) -> None:
    configs = [
        config(f"{role}-{number}", role, tmp_path)
        for number in range(20)
        for role in (Role.PREFILL, Role.DECODE)
    ]
    process = start_twins(*configs)
    with running(process):
        one_each = [replace(process, configs=(each,)) for each in configs]
        prefills, decodes = one_each[::2], one_each[1::2]
        with ThreadPoolExecutor(20) as pool:
            prompts = [[number] * 200 for number in range(20)]
            answers = list(pool.map(generate, prefills, decodes, prompts))
        for prompt, answer in zip(prompts, answers, strict=True):
            assert answer["output_ids"] == expected(prompt, decodes[0])
        inject(prefills[0], crash=True)
        wait_until(lambda: not _connects(prefills[0]), timeout_s=5, what="the twin is dead")
        assert generate(prefills[1], decodes[0], [3] * 200)["output_ids"] == expected(
            [3] * 200, decodes[0]
        )


def _connects(twin: TwinProcess) -> bool:
    try:
        return _health(twin) > 0
    except urllib.error.URLError:
        return False
