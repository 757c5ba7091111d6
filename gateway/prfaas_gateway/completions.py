"""The handlers that take prompts: /v1/completions, /v1/chat/completions, /generate."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing, closing

from aiohttp import web

from prfaas.errors import ConfigError
from prfaas.reasons import Reason
from prfaas.records import NodeRecord
from prfaas_gateway.access import CLIENT
from prfaas_gateway.admission import admitted
from prfaas_gateway.dispatch import Job, Trace
from prfaas_gateway.errors import GatewayError, RequestError, ServiceError
from prfaas_gateway.gateway import GATEWAY, TRACE, Gateway
from prfaas_gateway.inference import Api, InferenceRequest, parse_inference
from prfaas_gateway.leg import Answer, StreamBroken
from prfaas_gateway.limits import check_vocabulary
from prfaas_gateway.many_answers import job_of, merged_parts, opened, whole_of
from prfaas_gateway.output_count import OutputCount
from prfaas_gateway.requirements import residency_of
from prfaas_gateway.responses import CLIENT_GONE_STATUS, error_event, error_response
from prfaas_gateway.slow_clients import read_body, write_part
from prfaas_gateway.tokenizer import ModelTokenizer

logger = logging.getLogger(__name__)

_LONG_BODY_BYTES = 64 << 10
"""Longer bodies are parsed in a thread: the event loop must not wait for them."""


async def handle_inference(request: web.Request) -> web.StreamResponse:
    """Answer one request for tokens, and count it."""
    gateway, trace = request.app[GATEWAY], request[TRACE]
    status = 500
    try:
        response = await _answer(request, gateway, trace)
        status = response.status
    except GatewayError as error:
        trace.error = error.reason
        response = error_response(error)
        status = response.status
    except (asyncio.CancelledError, ConnectionResetError):
        trace.error, status = Reason.CLIENT_GONE, CLIENT_GONE_STATUS
        raise
    except Exception:
        trace.error = Reason.INTERNAL_ERROR
        raise
    finally:
        gateway.metrics.note_request(trace.route, trace.reason or Reason.INTERNAL_ERROR, status)
    return response


async def _answer(request: web.Request, gateway: Gateway, trace: Trace) -> web.StreamResponse:
    deadline_s = trace.started_s + gateway.section.request_timeout_s
    timeout_s = gateway.section.request_timeout_s
    response: web.StreamResponse | None = None
    with admitted(gateway):
        try:
            async with asyncio.timeout_at(deadline_s):
                job = await _prepare(request, gateway, trace, deadline_s)
                with closing(await gateway.dispatcher.open(job_of(job, 0))) as answer:
                    _note_demand(job, gateway)
                    response = _response_head(answer, job.request)
                    if job.request.num_answers > 1 and answer.status < 400:
                        async with opened(gateway.dispatcher, job, answer) as answers:
                            if answer.response is None:
                                answers = [whole_of(answers)]
                            return await _send(request, response, answers)
                    return await _send(request, response, [answer])
        except TimeoutError:
            error = ServiceError(Reason.DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s")
        if response is None or not response.prepared:
            raise error
        return await _end_broken(request, response, error)


async def _prepare(request: web.Request, gateway: Gateway, trace: Trace, deadline_s: float) -> Job:
    """Read, parse, check and tokenize.

    Raises:
        RequestError: the client must change something.
        ServiceError: no node is known that serves the model, or the key's tokens are used up.
    """
    parsed = await _parse(request)
    node = gateway.fleet.find_model(parsed.model)
    tokenizer = await _tokenizer_of(node, gateway)
    namespace = f"{node.model_id}\0{parsed.salt}"
    check_vocabulary(parsed.named_tokens, tokenizer.vocabulary)
    prompt = await tokenizer.encode(parsed.prompt, namespace=namespace)
    trace.prompt_tokens = prompt.num_tokens
    client = request.get(CLIENT)
    residency = residency_of(request.headers, gateway.fleet.policy, client and client.entry)
    job = Job(parsed, node.model_id, prompt, deadline_s, trace, residency)
    _check_length(job, gateway.fleet.context_limit_tokens(node.model_id))
    if client is not None:
        client.take_prompt(prompt.num_tokens)
    return job


async def _tokenizer_of(node: NodeRecord, gateway: Gateway) -> ModelTokenizer:
    try:
        return await gateway.tokenizers.get(node.model_path)
    except ConfigError as error:
        raise ServiceError(Reason.NOT_READY, str(error)) from None


async def _parse(request: web.Request) -> InferenceRequest:
    raw = await read_body(request)
    api = Api(request.path)
    if len(raw) > _LONG_BODY_BYTES:
        return await asyncio.to_thread(parse_inference, api, raw)
    return parse_inference(api, raw)


def _check_length(job: Job, limit_tokens: int) -> None:
    prompt_tokens = job.prompt.num_tokens
    if not prompt_tokens:
        raise RequestError("the prompt has no tokens", param="prompt")
    total_tokens = job.route_request.total_tokens
    if limit_tokens and total_tokens > limit_tokens:
        raise RequestError(
            f"{prompt_tokens} prompt tokens plus {total_tokens - prompt_tokens} output tokens are "
            f"more than the context of {limit_tokens} tokens"
        )


def _response_head(answer: Answer, request: InferenceRequest) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    response.content_type = answer.content_type
    if answer.response is not None and request.stream:
        response.headers["Cache-Control"] = "no-cache"
    return response


async def _send(
    request: web.Request, response: web.StreamResponse, answers: Sequence[Answer]
) -> web.StreamResponse:
    """Pass answers on as they come, several as one stream; count what passes."""
    gateway, trace, client = request.app[GATEWAY], request[TRACE], request.get(CLIENT)
    first, count = answers[0], OutputCount()
    _note_begun(first, gateway, trace)
    if first.response is None:
        response.content_length = len(first.first)
    await response.prepare(request)
    last = b""
    parts = first.parts() if len(answers) == 1 else merged_parts(answers)
    try:
        async with aclosing(parts):
            async for last in parts:
                count.take(last)
                await write_part(request, response, last)
    except StreamBroken as broken:
        error = _note_broken(broken, gateway, trace)
        mid_event = not last.endswith(b"\n\n")
        return await _end_broken(request, response, error, mid_event=mid_event)
    finally:
        if client is not None:
            client.add_output(count.tokens)
    await response.write_eof()
    if count.tokens:
        gateway.scheduler.demand.note_output(count.tokens, at_s=time.time())
    return response


def _note_demand(job: Job, gateway: Gateway) -> None:
    """Let the long-term scheduler see the request, which has begun to be answered."""
    decision = job.trace.decision
    assert decision is not None
    uncached_tokens = max(job.prompt.num_tokens - decision.prefix_tokens, 0)
    gateway.scheduler.demand.note_request(uncached_tokens, at_s=time.time())


def _note_broken(broken: StreamBroken, gateway: Gateway, trace: Trace) -> ServiceError:
    node = broken.node
    gateway.fleet.note_unreachable(node)
    logger.warning("%s: stream from %s broke: %s", trace.request_id, node.name, broken)
    return ServiceError(Reason.DECODE_LOST, f"decode node {node.name} went away: {broken}")


def _note_begun(answer: Answer, gateway: Gateway, trace: Trace) -> None:
    decision = trace.decision
    if decision is None or answer.status >= 400:
        return
    if answer.response is not None:
        ttft_s = asyncio.get_running_loop().time() - trace.started_s
        gateway.metrics.note_ttft(decision.route, ttft_s)
    gateway.metrics.note_routed(
        decision.route, prompt_tokens=trace.prompt_tokens, prefix_tokens=decision.prefix_tokens
    )


async def _end_broken(
    request: web.Request,
    response: web.StreamResponse,
    error: GatewayError,
    *,
    mid_event: bool = True,
) -> web.StreamResponse:
    """End a stream that has begun with an error event: its status was sent long ago."""
    request.app[GATEWAY].metrics.note_broken_stream(error.reason)
    await write_part(request, response, (b"\n\n" if mid_event else b"") + error_event(error))
    await response.write_eof()
    return response
