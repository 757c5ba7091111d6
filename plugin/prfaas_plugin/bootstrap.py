"""The bootstrap server: SGLang's, and what a decode needs to know of a prefill besides.

`PUT /prfaas/peer` stores what one prefill worker says of itself, `GET /prfaas/peer?rank=N` returns
it: its region, and where the backend for peers of that region listens.
"""

from aiohttp import web
from sglang.srt.disaggregation.common.conn import CommonKVBootstrapServer

from prfaas_plugin.peer_note import PEER_PATH, PeerNote

_MAX_RANKS = 4096


class PrfaasBootstrapServer(CommonKVBootstrapServer):  # type: ignore[misc]
    """Keeps a note per worker beside SGLang's own table."""

    def _setup_routes(self) -> None:
        super()._setup_routes()
        self.notes: dict[int, PeerNote] = {}
        self.app.router.add_put(PEER_PATH, self._put_note)
        self.app.router.add_get(PEER_PATH, self._get_note)

    async def _put_note(self, request: web.Request) -> web.Response:
        try:
            note = PeerNote.parse(await request.json())
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        if note.rank not in self.notes and len(self.notes) >= _MAX_RANKS:
            return web.Response(status=400, text=f"more than {_MAX_RANKS} workers")
        self.notes[note.rank] = note
        return web.Response(text="OK")

    async def _get_note(self, request: web.Request) -> web.Response:
        rank = request.query.get("rank", "")
        note = self.notes.get(int(rank)) if rank.isdecimal() and len(rank) < 6 else None
        if note is None:
            return web.Response(status=404, text="no such worker")
        return web.json_response(note.to_json())
