"""Clients that take their time: how long a request's body and an answer's reader are waited for."""

import asyncio

from aiohttp import web

from prfaas.reasons import Reason
from prfaas_gateway.errors import RequestError
from prfaas_gateway.gateway import GATEWAY


async def read_body(request: web.Request) -> bytes:
    """Return a request's body.

    Raises:
        RequestError: it is too large, too slow, or not what its headers say.
    """
    gateway = request.app[GATEWAY]
    timeout_s = gateway.api.body_timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            return await request.read()
    except TimeoutError:
        raise RequestError(
            f"the body has not come within {timeout_s:g} s", reason=Reason.REQUEST_TIMEOUT
        ) from None
    except web.HTTPRequestEntityTooLarge:
        raise RequestError(
            f"the body is larger than {gateway.section.max_body_bytes} bytes",
            reason=Reason.BODY_TOO_LARGE,
        ) from None
    except web.RequestPayloadError as error:
        text = " ".join(str(error).split())[:200]
        raise RequestError(f"the body cannot be read: {text}") from None


async def write_part(request: web.Request, response: web.StreamResponse, part: bytes) -> None:
    """Send the next bytes of an answer; who does not read loses the connection.

    Raises:
        ConnectionResetError: the client is gone, or read nothing for too long.
    """
    try:
        async with asyncio.timeout(request.app[GATEWAY].api.stall_timeout_s):
            await response.write(part)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read its answer") from None
