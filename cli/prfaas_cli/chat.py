"""`prfaasctl chat`: one request, and what the system did with it."""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import ConfigError, PrfaasError
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

if TYPE_CHECKING:
    from prfaas_cli.chat_stream import ChatAnswer
    from prfaas_cli.observation import Observed

_STATS_TIMEOUT_S = 1.0
_MAX_TIMEOUT_S = 86400.0

#: Bytes per ("wan", from region, to region) or ("payload", node, "sent" or "received").
_Counters = dict[tuple[str, str, str], int]


def chat(
    prompt: Annotated[str, typer.Argument(help="What to say.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate at most.")] = 32,
    repeat_to: Annotated[
        int | None, typer.Option(min=1, help="Repeat the prompt until it has this many tokens.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="A gateway other than the deployment's.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds without a byte.")] = 300.0,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Send one request; show its route, times and transfer."""
    from prfaas_cli.chat_stream import send_chat
    from prfaas_cli.deploy_gateway import client_context
    from prfaas_cli.output import Output

    if not 0 < timeout <= _MAX_TIMEOUT_S:
        raise ConfigError(f"--timeout {timeout:g}: allowed is above 0, up to {_MAX_TIMEOUT_S:g} s")
    observed = _observed(Place.of(state_dir, name), required=url is None)
    if repeat_to is not None:
        prompt = _repeat(prompt, repeat_to, observed)
    body = {
        **({"model": Path(observed.options.model_path).name} if observed and not url else {}),
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    target = url or _url(observed)
    tls = None if url or observed is None else client_context(observed.place, observed.options)
    before = _counters(observed)
    answer = send_chat(target, body, timeout_s=timeout, tls=tls)
    document = _describe(answer, _moved(before, _counters(observed)))
    Output(as_json=as_json).result(document, lambda: _lines(document))


def _observed(place: Place, *, required: bool) -> "Observed | None":
    from prfaas_cli.deploy_inventory import is_of_inventory
    from prfaas_cli.observation import Observed

    if not required and (place.read_deployment() is None or is_of_inventory(place)):
        return None
    return Observed.of(place)


def _url(observed: "Observed | None") -> str:
    from prfaas_cli.process_plan import api_url

    assert observed is not None
    return api_url(observed.options)


def _repeat(prompt: str, tokens: int, observed: "Observed | None") -> str:
    """Return the prompt's words again and again, as few as make `tokens` tokens."""
    from tokenizers import Tokenizer

    if observed is None:
        raise ConfigError("--repeat-to needs a deployment: its model's tokenizer counts the tokens")
    path = Path(observed.options.model_path) / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ConfigError(f"{path}: {error}") from None
    words = prompt.split()
    if not words:
        raise ConfigError("--repeat-to: the prompt is empty")
    text = list(islice(cycle(words), tokens))

    def count(number: int) -> int:
        return len(tokenizer.encode(" ".join(text[:number]), add_special_tokens=False).ids)

    # A word is at least one token, so `tokens` words are enough.
    return " ".join(text[: bisect_left(range(tokens), tokens, key=count)])


def _counters(observed: "Observed | None") -> _Counters:
    """Return the bytes on the WAN and the payload that the engines count, where they tell."""
    from prfaas_netem import wan_bytes

    if observed is None:
        return {}
    counters: _Counters = {}
    home = observed.options.home
    for region in observed.options.regions[:-1]:
        with suppress(PrfaasError):
            carried = wan_bytes(observed.topology, region)
            counters["wan", region, home] = carried["tx_bytes"]
            counters["wan", home, region] = carried["rx_bytes"]
    for node in observed.engine_nodes:
        counters |= _payload(observed, node)
    return counters


def _payload(observed: "Observed", node: str) -> _Counters:
    from prfaas_transport import read_stats

    try:
        stats = read_stats(observed.place.stats_socket(node), _STATS_TIMEOUT_S)
    except (OSError, ValueError):
        return {}
    values = {word: stats.get(f"payload_bytes_{word}_total") for word in ("sent", "received")}
    return {("payload", node, w): value for w, value in values.items() if isinstance(value, int)}


def _moved(before: _Counters, after: _Counters) -> list[dict[str, Any]]:
    """Return what was counted in between, one object per counter that stands in both."""
    moved: list[dict[str, Any]] = []
    for key in before:
        if key in after:
            what, first, second = key
            names = ("from", "to") if what == "wan" else ("node", "direction")
            ends = dict(zip(names, (first, second), strict=True))
            moved.append({"what": what, **ends, "bytes": after[key] - before[key]})
    return moved


def _describe(answer: "ChatAnswer", moved: list[dict[str, Any]]) -> dict[str, Any]:
    from dataclasses import asdict

    document = asdict(answer)
    tokens = answer.usage.get("completion_tokens")
    if answer.ttft_s is not None and isinstance(tokens, int) and tokens > 1:
        document["tpot_s"] = (answer.total_s - answer.ttft_s) / (tokens - 1)
    return {**document, "moved": moved}


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from prfaas_cli.output import shown_bytes

    routing, usage = document["routing"], document["usage"]
    yield document["text"]
    yield ""
    yield f"route     {routing['route'] or 'unknown'}, because {routing['reason'] or 'unknown'}"
    yield f"prefill   {routing['prefill'] or 'unknown'}"
    ttft = "no token" if document["ttft_s"] is None else f"{document['ttft_s']:.3f} s"
    yield f"TTFT      {ttft}, total {document['total_s']:.3f} s"
    prompt, completion = usage.get("prompt_tokens", "?"), usage.get("completion_tokens", "?")
    cached = routing["prefix_tokens"] or 0
    held = f"{cached} of them cached at {routing['prefill'] or 'the prefill'}"
    yield f"tokens    {prompt} in the prompt ({held}), {completion} generated"
    for entry in document["moved"]:
        if entry["bytes"]:
            yield f"moved     {_place(entry)}: {shown_bytes(entry['bytes'])}"


def _place(entry: dict[str, Any]) -> str:
    if entry["what"] == "wan":
        return f"wan {entry['from']} to {entry['to']}"
    return f"payload {entry['direction']} by {entry['node']}"
