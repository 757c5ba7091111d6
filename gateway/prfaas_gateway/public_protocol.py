"""aiohttp's side of one connection of a client, with errors in OpenAI's form."""

import logging
import uuid

from aiohttp import web

from prfaas.reasons import Reason
from prfaas_gateway.responses import SERVER, error_body

logger = logging.getLogger(__name__)

_MAX_MESSAGE_LENGTH = 200


class PublicProtocol(web.RequestHandler):
    """Answers what is no HTTP in the form of all other errors, and logs no trace of it."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to what no handler saw; the connection ends with it."""
        if status >= 500:
            response = super().handle_error(request, status, exc, message)
            body = error_body("internal error", "internal_error", Reason.INTERNAL_ERROR)
        else:
            if request.writer.output_size > 0:
                raise ConnectionError("an answer has begun already")
            text = " ".join((message or "bad request").split())[:_MAX_MESSAGE_LENGTH]
            logger.debug("%s: %s", request.remote, text)
            body = error_body(text, "invalid_request_error", Reason.INVALID_REQUEST)
        headers = {"x-request-id": uuid.uuid4().hex, "Server": SERVER}
        response = web.Response(
            status=status, body=body, content_type="application/json", headers=headers
        )
        response.force_close()
        return response
