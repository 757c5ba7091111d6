"""The twin's contract: the same requests to it and to real SGLang get answers of the same form.

Nothing is recorded: both run, both are asked, and what comes back is compared, value by value where
the request determines it, by type where it does not.
"""

import http.client
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deployment import wait_until
from sglang_engines import ForkServerProcess
from twin_engines import TwinProcess, running, start_twins, twin_config

from prfaas.records import Role
from prfaas.twin_section import TwinSection

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MODEL = "qwen3-tiny"
TIMEOUT_S = 20.0
SAMPLING = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
PROMPT = list(range(5, 105))
GENERATE = {"input_ids": PROMPT, "sampling_params": SAMPLING}
COMPLETION = {"model": MODEL, "prompt": "Hello there", "max_tokens": 4, "temperature": 0}
CHAT = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hello there"}],
    "max_tokens": 4,
    "temperature": 0,
}
STREAM = {"stream": True}
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
#: Numbers that nothing else in an answer is.
rooms = count(7_000_000_001)


@dataclass(frozen=True)
class Reply:
    """What came back; `content_type` without its charset."""

    status: int
    content_type: str
    text: str


@dataclass(frozen=True)
class Pair:
    """A prefill and a decode of one kind."""

    kind: str
    prefill: int
    decode: int
    bootstrap: int

    def port(self, role: str) -> int:
        return self.prefill if role == "prefill" else self.decode

    def meeting(self, bootstrap: int | None = None, **more: Any) -> dict[str, Any]:
        """Return what both legs of a request share, under a room of its own."""
        return {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": bootstrap or self.bootstrap,
            "bootstrap_room": next(rooms),
            **more,
        }

    def ask(self, path: str, body: dict[str, Any]) -> tuple[Reply, Reply]:
        """Send both legs; return the prefill's answer and the decode's."""
        meeting = self.meeting(rid=f"rid-{next(rooms)}")
        with ThreadPoolExecutor(1) as pool:
            first = {**body, **meeting, "stream": False}
            prefill = pool.submit(post, self.prefill, path, first)
            decode = post(self.decode, path, {**body, **meeting})
            return prefill.result(), decode


def request(port: int, method: str, path: str, body: bytes | None = None) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        headers = {"content-type": "application/json"} if body is not None else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        kind = (answer.getheader("content-type") or "").split(";")[0]
        return Reply(answer.status, kind, text)
    finally:
        connection.close()


def post(port: int, path: str, body: dict[str, Any]) -> Reply:
    return request(port, "POST", path, json.dumps(body).encode())


@dataclass(frozen=True)
class Both:
    """The two kinds, and how to start more twins."""

    sglang: Pair
    twin: Pair
    twins: tuple[TwinProcess, TwinProcess]
    directory: Path

    def __iter__(self) -> Iterator[Pair]:
        return iter((self.sglang, self.twin))

    def compare(self, observe: Callable[[Pair], Any]) -> Any:
        """Observe both, at once, and fail unless they are alike; returns what was seen."""
        with ThreadPoolExecutor(2) as pool:
            real, twin = pool.map(observe, self)
        assert twin == real
        return real


def start_twin(directory: Path, model: Path, name: str, role: Role) -> TwinProcess:
    # As SGLang runs here: a context of 4,096 tokens, chunks of 512, no states.
    twin = TwinSection(dilation=0.2, context_tokens=4096, chunk_tokens=512, stateful=False)
    return start_twins(twin_config(name, role, model=model, state_dir=directory, twin=twin))


@pytest.fixture(scope="module")
def both(
    fork_server: ForkServerProcess, models_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    model, directory = models_dir / MODEL, tmp_path_factory.mktemp("twins")
    prefill = fork_server.start_prefill(model, name="contract-prefill", transfer={})
    decode = fork_server.start_decode(model, name="contract-decode")
    twins = (
        start_twin(directory, model, "p", Role.PREFILL),
        start_twin(directory, model, "d", Role.DECODE),
    )
    with fork_server.running(prefill, decode), running(*twins):
        real = Pair("sglang", prefill.port, decode.port, prefill.bootstrap_port)
        twin = Pair("twin", twins[0].port, twins[1].port, twins[0].bootstrap_port)
        yield Both(real, twin, twins, directory)


# ---- answers -----------------------------------------------------------------------------------

#: What a request does not determine: the model's words, names, and the time.
_FREE = {"text", "content", "output_ids", "id", "created", "e2e_latency", "token"}
_FREE |= {"response_sent_to_client_ts", "cached_tokens", "device"}


def form(value: Any, key: str = "") -> Any:
    """Return a value with what is free replaced by its type."""
    if key in _FREE and value is not None:
        return f"{key}: {type(value).__name__}"
    if isinstance(value, dict):
        return {name: form(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [form(item) for item in value]
    return value


def seen(reply: Reply) -> Any:
    """Return what a client sees of an answer, without what is free."""
    if reply.content_type == "text/event-stream":
        return reply.status, reply.content_type, [form(event) for event in events(reply)]
    if reply.content_type == "application/json":
        return reply.status, reply.content_type, form(json.loads(reply.text))
    return reply.status, "", reply.text


def events(reply: Reply) -> list[Any]:
    parts = reply.text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""], parts[-2:]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


WHOLE = [
    ("/generate", GENERATE),
    ("/generate", {"text": "Hello there", "sampling_params": SAMPLING}),
    ("/generate", {**GENERATE, "sampling_params": {**SAMPLING, "max_new_tokens": 1}}),
    ("/generate", {**GENERATE, "sampling_params": {**SAMPLING, "max_new_tokens": 0}}),
    ("/v1/completions", COMPLETION),
    ("/v1/completions", {**COMPLETION, "prompt": [5, 6, 7, 8]}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "max_tokens": None, "max_completion_tokens": 3}),
]


@pytest.mark.parametrize(("path", "body"), WHOLE)
def test_whole_answers_have_the_same_form(both: Both, path: str, body: dict[str, Any]) -> None:
    """Of both legs; the first time, when nothing is cached."""
    both.compare(lambda pair: post(pair.decode, "/flush_cache", {}).status)

    def observe(pair: Pair) -> Any:
        post(pair.prefill, "/flush_cache", {})
        return [seen(reply) for reply in pair.ask(path, body)]

    prefill, decode = both.compare(observe)
    assert prefill[0] == decode[0] == 200


def test_a_cached_prompt_is_told_of(both: Both) -> None:
    prompt = {**GENERATE, "input_ids": [7] * 300}

    def observe(pair: Pair) -> Any:
        pair.ask("/generate", prompt)
        reply = pair.ask("/generate", prompt)[1]
        meta = json.loads(reply.text)["meta_info"]
        assert 200 < meta["cached_tokens"] < 300
        assert meta["cached_tokens_details"]["device"] == meta["cached_tokens"]
        return seen(reply)

    both.compare(observe)


@pytest.mark.parametrize("options", [STREAM, WITH_USAGE], ids=["plain", "usage"])
@pytest.mark.parametrize(
    ("path", "body"),
    [("/generate", GENERATE), ("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)],
)
def test_streams_have_the_same_events(
    both: Both, path: str, body: dict[str, Any], options: dict[str, Any]
) -> None:
    """Of the events between the first and the end, as many as there are tokens for, or fewer:
    tokens that are no text of their own, and those that come at once, share one."""

    middles: dict[str, set[str]] = {}

    def observe(pair: Pair) -> Any:
        post(pair.prefill, "/flush_cache", {})
        status, kind, told = seen(pair.ask(path, {**body, **options})[1])
        ends = 1 + (options is WITH_USAGE and path != "/generate")
        assert len(told) <= SAMPLING["max_new_tokens"] + 3
        middles[pair.kind] = set(map(_without_counts, told[1:-ends]))
        return status, kind, _without_counts(told[0]), told[-ends:]

    both.compare(observe)
    assert middles["twin"] <= middles["sglang"]


def _without_counts(event: Any) -> str:
    return re.sub(r'"completion_tokens": \d+', "", json.dumps(event))


def test_streamed_and_whole_texts_are_the_same(both: Both) -> None:
    for pair in both:
        whole = json.loads(pair.ask("/v1/completions", COMPLETION)[1].text)
        streamed = events(pair.ask("/v1/completions", {**COMPLETION, **STREAM})[1])
        text = "".join(event["choices"][0]["text"] for event in streamed)
        assert text == whole["choices"][0]["text"]
        generated = events(pair.ask("/generate", {**GENERATE, **STREAM})[1])
        assert (
            generated[-1]["output_ids"]
            == json.loads(pair.ask("/generate", GENERATE)[1].text)["output_ids"]
        )


# ---- about the server --------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/health_generate"),
        ("GET", "/ready"),
        ("GET", "/v1/models"),
        ("GET", "/nope"),
        ("POST", "/health"),
        ("POST", "/flush_cache"),
        ("GET", "/flush_cache"),
    ],
)
def test_plain_endpoints_answer_the_same(both: Both, role: str, method: str, path: str) -> None:
    both.compare(lambda pair: seen(request(pair.port(role), method, path)))


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(
    "path", ["/server_info", "/get_server_info", "/model_info", "/get_model_info"]
)
def test_what_a_twin_tells_of_itself_sglang_tells_too(both: Both, role: str, path: str) -> None:
    real, twin = (
        json.loads(request(pair.port(role), "GET", path).text) for pair in (both.sglang, both.twin)
    )
    assert twin.keys() - real.keys() <= {"twin"}
    for key in ("served_model_name", "disaggregation_mode", "model_path", "tokenizer_path"):
        assert twin[key] == real[key]
    if "server_info" in path:
        for key in ("context_length", "page_size", "chunked_prefill_size", "version"):
            assert twin[key] == real[key], key


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_loads_are_told_under_the_same_names(both: Both, role: str) -> None:
    real, twin = (
        json.loads(request(pair.port(role), "GET", "/v1/loads").text)
        for pair in (both.sglang, both.twin)
    )
    assert twin.keys() == real.keys()
    (real_load,), (twin_load,) = real["loads"], twin["loads"]
    assert twin_load.keys() - real_load.keys() == {"totals"}
    assert twin_load["disaggregation"].keys() <= real_load["disaggregation"].keys()
    assert twin_load["disaggregation"]["mode"] == real_load["disaggregation"]["mode"] == role


def test_bootstrap_is_the_same_protocol(both: Both) -> None:
    ranks = "prefill_dp_rank={0}&prefill_cp_rank={0}&target_tp_rank={0}&target_pp_rank={0}"
    for query in (ranks.format(7), "prefill_dp_rank=0", ""):
        both.compare(lambda pair, q=query: seen(request(pair.bootstrap, "GET", f"/route?{q}")))
    both.compare(lambda pair: seen(request(pair.bootstrap, "GET", "/health")))
    for rank in (-1, 0):
        path = f"/route?{ranks.format(rank)}"
        real, twin = (
            json.loads(request(pair.bootstrap, "GET", path).text)
            for pair in (both.sglang, both.twin)
        )
        types = [{key: type(item) for key, item in each.items()} for each in (real, twin)]
        assert types[0] == types[1]


# ---- requests that are wrong -------------------------------------------------------------------


def error(reply: Reply) -> Any:
    """Return an error without the words of validators, which are of other makers."""
    status, kind, body = seen(reply)
    text = json.dumps(body)
    if "validation error" in text:
        body["message"] = "validation error"
    return status, kind, json.loads(re.sub(r"req\.rid='\w+'", "req.rid", json.dumps(body)))


WRONG: list[tuple[str, bytes | dict[str, Any]]] = [
    ("/generate", b"{"),
    ("/v1/chat/completions", b"{"),
    ("/v1/completions", b"[]"),
    ("/v1/chat/completions", {"model": MODEL}),
    ("/v1/chat/completions", {"model": MODEL, "messages": []}),
    ("/generate", {"input_ids": [], "sampling_params": SAMPLING}),
    ("/generate", {"input_ids": [5] * 9000}),
    ("/generate", {"input_ids": [5] * 10, "sampling_params": {"max_new_tokens": 100_000}}),
    ("/v1/completions", {**COMPLETION, "max_tokens": 100_000}),
    ("/v1/completions", {**COMPLETION, "prompt": [5] * 9000}),
]


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(("path", "body"), WRONG)
def test_wrong_requests_are_refused_alike(
    both: Both, role: str, path: str, body: bytes | dict[str, Any]
) -> None:
    def observe(pair: Pair) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps({**body, **pair.meeting()}).encode()
        return error(request(pair.port(role), "POST", path, raw))

    assert both.compare(observe)[0] == 400


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_request_without_a_room_is_refused_alike(both: Both, role: str) -> None:
    assert both.compare(lambda pair: error(post(pair.port(role), "/generate", GENERATE)))[0] == 400


# ---- ends --------------------------------------------------------------------------------------

APIS = [("/generate", GENERATE), ("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]


def wait_empty(pair: Pair, role: str) -> None:
    """Wait until nothing of any request is left in a twin; an idle SGLang does not tell."""
    if pair.kind == "twin":
        wait_until(lambda: _requests(pair, role) == 0, timeout_s=5, what="nothing is left")


def _requests(pair: Pair, role: str) -> int:
    (told,) = json.loads(request(pair.port(role), "GET", "/v1/loads").text)["loads"]
    queues = sum(n for name, n in told["disaggregation"].items() if name.endswith("_reqs"))
    return int(told["num_running_reqs"] + told["num_waiting_reqs"] + queues)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "body"), APIS)
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_abort_of_a_leg_that_waits_is_told_alike(
    both: Both, role: str, path: str, body: dict[str, Any], stream: bool
) -> None:
    def observe(pair: Pair) -> Any:
        meeting = pair.meeting(rid="victim")
        with ThreadPoolExecutor(1) as pool:
            sent = {**body, **meeting, "stream": stream}
            leg = pool.submit(post, pair.port(role), path, sent)
            time.sleep(0.4)
            assert not leg.done()
            aborted = post(pair.port(role), "/abort_request", {"rid": "victim"})
            text = seen(leg.result())
        wait_empty(pair, role)
        room = str(meeting["bootstrap_room"])
        return aborted.status, json.loads(json.dumps(text).replace(room, "ROOM"))

    both.compare(observe)


def test_an_abort_of_what_is_not_here_is_no_error(both: Both) -> None:
    both.compare(lambda pair: seen(post(pair.decode, "/abort_request", {"rid": "nobody"})))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_abort_in_the_middle_of_an_answer_ends_it_alike(both: Both, stream: bool) -> None:
    long = {**GENERATE, "sampling_params": {**SAMPLING, "max_new_tokens": 3000}, "stream": stream}

    def observe(pair: Pair) -> Any:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(pair.ask, "/generate", long)
            time.sleep(1.5)
            assert not asked.done()
            post(pair.decode, "/abort_request", {"abort_all": True})
            reply = asked.result()[1]
        last = events(reply)[-1] if stream else json.loads(reply.text)
        assert 0 < last["meta_info"]["completion_tokens"] < 3000
        return reply.status, last["meta_info"]["finish_reason"], sorted(last["meta_info"])

    both.compare(observe)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_client_that_goes_away_leaves_nothing_behind(both: Both, role: str) -> None:
    def observe(pair: Pair) -> Any:
        body = json.dumps({**GENERATE, **pair.meeting()}).encode()
        head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        with socket.create_connection(("127.0.0.1", pair.port(role))) as client:
            client.sendall(head.encode() + body)
            time.sleep(0.5)
        wait_empty(pair, role)
        return [seen(reply)[0] for reply in pair.ask("/generate", GENERATE)]

    assert both.compare(observe) == [200, 200]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "body"), APIS)
def test_engines_of_the_other_kind_are_refused(
    both: Both, path: str, body: dict[str, Any], stream: bool
) -> None:
    """Their caches differ: the decode says so, and serves on with its own kind."""
    for decode, prefill in ((both.sglang, both.twin), (both.twin, both.sglang)):
        sent = {**body, **decode.meeting(prefill.bootstrap), "stream": stream}
        reply = post(decode.decode, path, sent)
        assert reply.status == (200 if stream else 500)
        assert "Decode handshake failed" in reply.text or "Decode transfer failed" in reply.text
        assert "mismatch" in reply.text, f"{decode.kind}: {reply.text}"
        assert [seen(each)[0] for each in decode.ask("/generate", GENERATE)] == [200, 200]


def test_a_role_switch_that_was_not_allowed_is_refused_alike(both: Both) -> None:
    both.compare(lambda pair: seen(post(pair.decode, "/pd_role_switch", {"new_role": "prefill"})))
    both.compare(lambda pair: error(post(pair.decode, "/pd_role_switch", {"new_role": "x"})))


def test_a_prefill_that_dies_fails_its_decodes_room_alike(
    both: Both, fork_server: ForkServerProcess, models_dir: Path
) -> None:
    model = models_dir / MODEL
    real = fork_server.start_prefill(model, name="contract-doomed", transfer={})
    twin = start_twin(both.directory, model, "doomed", Role.PREFILL)
    with fork_server.running(real), running(twin):
        doomed = {"sglang": real, "twin": twin}

        def observe(pair: Pair) -> Any:
            engine = doomed[pair.kind]
            meeting = pair.meeting(engine.bootstrap_port, rid="victim")
            with ThreadPoolExecutor(1) as pool:
                leg = pool.submit(post, pair.decode, "/generate", {**GENERATE, **meeting})
                time.sleep(1.0)
                assert not leg.done()
                engine.kill()
                text = json.dumps(seen(leg.result()))
            # Whether the kernel says that it was closed or reset is up to the moment.
            text = re.sub(r"lanes_lost: 127\.0\.0\.1:[^\"]+", "lanes_lost", text)
            return json.loads(text.replace(str(meeting["bootstrap_room"]), "ROOM"))

        status, _, body = both.compare(observe)
        assert status == 500
        assert "lanes_lost" in body["message"]
