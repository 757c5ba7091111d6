"""Whatever clients and engines send: no 500, errors in OpenAI's form, and nothing left behind."""

import asyncio
import io
import json
import os
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from etcd_server import EtcdServer
from fake_engine import Saying
from gateway_world import World
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_tokenizer import words

from prfaas.api_section import ApiSection

PATHS = ("/v1/completions", "/v1/chat/completions", "/generate", "/tokenize", "/detokenize")
ADMIN_PATHS = ("/admin/v1/policy", "/admin/v1/plan")
#: What a gateway may answer when all its engines are well.
ANSWERS = {200, 400, 403, 404, 408, 413, 503}
LIMIT_S = 60.0

VALID: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "w1 w2", "max_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "w1"}], "max_tokens": 2},
    "/generate": {"text": "w1 w2", "sampling_params": {"max_new_tokens": 2}},
    "/tokenize": {"prompt": "w1"},
    "/detokenize": {"tokens": [5]},
    "/admin/v1/policy": {"threshold_tokens": 100},
    "/admin/v1/plan": {"threshold_tokens": 100, "dry_run": True},
}
FIELDS = sorted(
    {name for body in VALID.values() for name in body}
    | {"model", "stream", "stream_options", "n", "best_of", "stop", "logit_bias", "logprobs"}
    | {"top_logprobs", "token_ids_logprob", "stop_token_ids", "stop_regex", "tools", "input_ids"}
    | {"chat_template_kwargs", "response_format", "seed", "rid", "bootstrap_room", "cache_salt"}
    | {"extra_key", "max_completion_tokens", "tenants", "roles", "expected_version", "pinned"}
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["w1", "user", "system", "tool", "[", "(?P<", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


class Fuzzed:
    """A world on a loop of its own, for tests that are no coroutines."""

    def __init__(self, runner: asyncio.Runner, world: World) -> None:
        self.run = runner.run
        self.world = world

    def send(self, path: str, data: bytes, **options: Any) -> tuple[int, Mapping[str, str], bytes]:
        return self.run(self._send(path, data, **options))

    async def _send(
        self, path: str, data: bytes, method: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        method = method or ("PUT" if path in ADMIN_PATHS else "POST")
        body = io.BytesIO(data) if len(data) > 1 << 20 else data
        async with (
            asyncio.timeout(LIMIT_S),
            self.world.http.request(method, path, data=body, headers=headers) as response,
        ):
            return response.status, response.headers, await response.read()

    async def used(self) -> tuple[int, int]:
        """Return the tasks and the file descriptors of this process."""
        return len(asyncio.all_tasks()), len(await asyncio.to_thread(os.listdir, "/proc/self/fd"))

    async def settle(self) -> tuple[int, int]:
        await self.world.until_fleet(lambda fleet: fleet["active_requests"] == 0)
        await self.world.until_fleet(lambda fleet: not any(n["in_flight"] for n in fleet["nodes"]))
        return await self.used()

    async def until_as_before(self, before: tuple[int, int]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while True:
                tasks, files = await self.settle()
                # A connection that is kept for reuse may come or go: a task, and both its ends.
                if tasks <= before[0] + 3 and files <= before[1] + 6:
                    return
                await asyncio.sleep(0.2)


@contextmanager
def fuzzing(etcd: EtcdServer, model_path: Path, **options: Any) -> Iterator[Fuzzed]:
    with asyncio.Runner() as runner:
        world = World(etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
        runner.run(world.__aenter__())
        try:
            runner.run(world.start_engines())
            runner.run(world.start_gateway(**options))
            fuzzed = Fuzzed(runner, world)
            for path, body in VALID.items():
                assert fuzzed.send(path, json.dumps(body).encode())[0] == 200, path
            before = runner.run(fuzzed.settle())
            yield fuzzed
            for path, body in VALID.items():
                assert fuzzed.send(path, json.dumps(body).encode())[0] == 200, path
            runner.run(fuzzed.until_as_before(before))
        finally:
            runner.run(world.__aexit__(None, None, None))


def check(
    status: int, headers: Mapping[str, str], body: bytes, allowed: set[int] = ANSWERS
) -> None:
    assert status in allowed, body
    assert headers.get("x-request-id"), (headers, body)
    if status >= 400:
        error = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] != "internal_error"
        assert len(body) < 20_000


def test_bodies_that_are_nearly_right(shared_etcd: EtcdServer, model_path: Path) -> None:
    with fuzzing(shared_etcd, model_path) as fuzzed:

        @settings(max_examples=250)
        @given(
            st.sampled_from(sorted(VALID)),
            st.dictionaries(st.sampled_from(FIELDS), values, min_size=1, max_size=3),
        )
        def send(path: str, changes: dict[str, Any]) -> None:
            if path == "/admin/v1/plan":
                changes = {**changes, "dry_run": True}
            data = json.dumps({**VALID[path], **changes}).encode()
            status, headers, body = fuzzed.send(path, data)
            if path == "/admin/v1/policy" and status == 200:
                fuzzed.send(path, b'{"threshold_tokens": 100, "tenants": {}}')
            check(status, headers, body)

        send()


DEEP = [
    b'{"a": ' * depth + b"1" + b"}" * depth for depth in (100, 900, 950, 990, 1000, 100_000)
] + [
    b'{"%s": %s, "prompt": "w1", "text": "w1", "max_tokens": 2}'
    % (field, b"[" * depth + b"]" * depth)
    for depth in (100, 900, 950, 980, 990, 1000)
    for field in (b"stop_token_ids", b"metadata", b"logprobs", b"prompt", b"messages")
]


def test_bytes_that_are_no_json(shared_etcd: EtcdServer, model_path: Path) -> None:
    with fuzzing(shared_etcd, model_path, max_body_bytes=1 << 20) as fuzzed:
        whole = {path: json.dumps(body).encode() for path, body in VALID.items()}

        @settings(max_examples=120)
        @example("/generate", b"\xff\xfe\x00", 0)
        @example("/generate", b"", 1 << 21)
        @given(st.sampled_from(sorted(VALID)), st.binary(max_size=30), st.integers(0, 200))
        def send(path: str, noise: bytes, place: int) -> None:
            text = whole[path]
            data = text[:place] + noise + text[place + len(noise) // 2 :]
            if place > 200:
                data = b" " * place
            check(*fuzzed.send(path, data))

        send()
        for path in VALID:
            for data in DEEP:
                check(*fuzzed.send(path, data))


headers = st.dictionaries(
    st.sampled_from(
        [
            "Authorization",
            "x-request-id",
            "x-prfaas-tenant",
            "x-prfaas-residency",
            "traceparent",
            "tracestate",
            "Origin",
            "Content-Type",
            "Accept",
            "Connection",
            "Cookie",
        ]
    ),
    st.text(
        st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60
    )
    | st.just("x" * 8000),
    max_size=4,
)


def test_headers_of_all_kinds(shared_etcd: EtcdServer, model_path: Path) -> None:
    api = ApiSection(cors_origins=("*",))
    with fuzzing(shared_etcd, model_path, api=api) as fuzzed:

        @settings(max_examples=120)
        @given(st.sampled_from(sorted(VALID)), st.sampled_from(["", "GET", "OPTIONS"]), headers)
        def send(path: str, method: str, sent: dict[str, str]) -> None:
            status, found, body = fuzzed.send(
                path, json.dumps(VALID[path]).encode(), method=method, headers=sent
            )
            check(status, found, body, ANSWERS | {204, 405, 417})

        send()


PIECES = [b"data: ", b"data:", b"\n\n", b"\n", b"[DONE]", b'{"error": {"message": 5}}']
PIECES += [b'{"choices": 5}', b'{"choices": [{"finish_reason": "abort"}]}', b"\xff\x00", b"{"]
PIECES += [b'{"meta_info": {"finish_reason": {"type": "abort", "status_code": "x"}}}', b": note"]
PIECES += [b'{"error": ' * 2000, b"event: x", b'{"choices": [{"index": 0, "text": "w"}]}']
sayings = st.builds(
    Saying,
    parts=st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=6).map(tuple),
    status=st.sampled_from([200, 200, 200, 201, 400, 404, 422, 429, 500, 503]),
    content_type=st.sampled_from(["text/event-stream", "application/json", "text/html", "x"]),
    breaks_off=st.booleans(),
)


def test_engines_that_say_anything(shared_etcd: EtcdServer, model_path: Path) -> None:
    """An engine's refusal is passed on as it is; what it breaks is no 500 of the gateway's."""
    with fuzzing(shared_etcd, model_path) as fuzzed:
        decode = fuzzed.world.decode_b
        numbers = iter(range(1_000_000))

        @settings(max_examples=150)
        @given(st.sampled_from(PATHS[:3]), st.booleans(), sayings)
        def send(path: str, stream: bool, saying: Saying) -> None:
            decode.sayings = [saying] * 3
            body = {**VALID[path], "stream": stream}
            name = {"x-request-id": f"fuzz-{next(numbers)}"}
            try:
                status, _, said = fuzzed.send(path, json.dumps(body).encode(), headers=name)
            except aiohttp.ClientPayloadError:
                return
            assert status != 500
            assert b"internal_error" not in said
            decode.sayings = []

        send()
        decode.sayings = []
        fuzzed.run(fuzzed.world.until(lambda: _is_free(fuzzed)))


async def _is_free(fuzzed: Fuzzed) -> bool:
    """Return whether no node is left alone any more for what it said."""
    nodes = (await fuzzed.world.fleet())["nodes"]
    return not any(node.get("quarantined_s") for node in nodes)


def test_connections_that_begin_anything(shared_etcd: EtcdServer, model_path: Path) -> None:
    """Slow ones, half ones and ones that are cut leave neither tasks nor sockets."""
    api = ApiSection(header_timeout_s=0.5, idle_timeout_s=0.5, body_timeout_s=0.5)
    seed = random.Random(7)
    body = json.dumps({"prompt": words(50), "max_tokens": 2, "stream": True}).encode()
    whole = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )

    async def begin(port: int, sent: bytes, *, cut: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        if cut:
            await asyncio.sleep(seed.random() / 20)
            writer.transport.abort()
            return
        async with asyncio.timeout(LIMIT_S):
            with suppress(ConnectionResetError):
                await reader.read()
        writer.close()

    with fuzzing(shared_etcd, model_path, api=api) as fuzzed:
        port = int(fuzzed.world.url.rpartition(":")[2])

        async def storm() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(150):
                    sent = whole[: seed.randrange(len(whole) + 1)]
                    if number % 5 == 0:
                        sent = seed.randbytes(40) + b"\r\n\r\n"
                    group.create_task(begin(port, sent, cut=number % 3 == 0))

        fuzzed.run(storm())


@pytest.mark.parametrize("path", ["/v1/models/" + "x/" * 2000, "/v1/%ff%fe", "/%00", "//", "/..;/"])
async def test_paths_of_all_kinds(world: World, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"):
        async with world.http.request(method, world.url + path) as response:
            assert response.status in (404, 405)
