"""The global KV cache manager's hands: prefixes are moved to where they are asked for.

The gateway that decides a request also decides and carries out its move, no leader: it alone has
the prompt's tokens, by which the pools find the prefix, and a move that two gateways make at once
is made once, as the destination asks for what it lacks. Each has its part of the link's budget.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import xxhash

from prfaas.blocks import HashedPrompt
from prfaas.errors import ProtocolError
from prfaas.prefix_moves import FETCH_PATH, FetchAnswer, FetchRequest, Outcome
from prfaas.records import NodeRecord, Role
from prfaas.routing import Decision, LinkRule
from prfaas.routing.replication import Replication, Verdict, Wanted
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.leg_tasks import LegTasks
from prfaas_gateway.move_log import Cause, MoveLog

logger = logging.getLogger(__name__)

FETCH_S = 150.0
"""How long a move may take, as seen from here; the pools' hosts give up before."""
MAX_RUNNING = 8
_MAX_ANSWER_BYTES = 64 << 10
_LEARN = 0.3

Tls = Callable[[], ssl.SSLContext]


@dataclass(frozen=True, slots=True)
class Salted:
    """A prompt and what the client separates its caches by."""

    prompt: HashedPrompt
    cache_salt: str = ""
    extra_key: str = ""

    @classmethod
    def of(cls, prompt: HashedPrompt, salt: str) -> "Salted":
        """Take a request's salt as `InferenceRequest` has it."""
        cache_salt, _, extra_key = salt.partition("\0")
        return cls(prompt, cache_salt, extra_key)


class PrefixMoves:
    """Moves of one gateway. `tls` gives the context for other nodes, None: none. One event loop."""

    def __init__(
        self, fleet: Fleet, session: aiohttp.ClientSession, tls: Tls | None, tasks: LegTasks
    ) -> None:
        self.log = MoveLog()
        self.replication = Replication()
        self._fleet = fleet
        self._session = session
        self._tls = tls
        self._tasks = tasks
        self._running: dict[bytes, asyncio.Task[FetchAnswer]] = {}
        self._bytes_per_token: dict[str, float] = {}

    async def prepare(self, decision: Decision, salted: Salted) -> Verdict:
        """Do about a decision's move what is worth it; return when the request need not wait.

        A move that goes on then is for the requests to come.
        """
        assert decision.move is not None
        source, destination = decision.move.source, decision.prefill
        wanted = self._wanted(decision, salted.prompt)
        task, verdict = self._running.get(wanted.name), Verdict.WAIT
        if task is None:
            verdict = self._judge(self._remote(source, destination), wanted)
            if verdict not in (Verdict.WAIT, Verdict.REPLICATE):
                return verdict
            cause = Cause.REQUEST if verdict is Verdict.WAIT else Cause.HOT
            # Of n tokens n-1 can be resumed from: what is kept at the prompt's end is of no use.
            part = Salted(
                salted.prompt.first(salted.prompt.num_tokens - 1),
                salted.cache_salt,
                salted.extra_key,
            )
            task = self._start(wanted.name, cause, source, destination, part)
        wait_s = self.replication.wait_s(wanted)
        if wait_s:
            await asyncio.wait({task}, timeout=wait_s)
        return verdict

    def _judge(self, region: str, wanted: Wanted) -> Verdict:
        if len(self._running) >= MAX_RUNNING:
            verdict = Verdict.BUDGET
        else:
            verdict = self.replication.judge(region, wanted, _now_s())
        self.log.verdicts[verdict] += 1
        return verdict

    async def move(
        self, source: NodeRecord, destination: NodeRecord, salted: Salted
    ) -> FetchAnswer:
        """Move a prompt's prefix because somebody says so; no budget is asked, but charged."""
        return await self._fetch(Cause.BY_HAND, source, destination, salted)

    def mover_in(self, region: str, model_id: str) -> NodeRecord | None:
        """Return a prefill node of a region whose pool prefixes can come from and go to."""
        found = [
            node
            for node in self._fleet.engines()
            if node.region == region
            and node.model_id == model_id
            and node.role is Role.PREFILL
            and node.pool_url
        ]
        return min(found, key=lambda node: node.name, default=None)

    def describe(self, limit: int) -> dict[str, Any]:
        """Return the last moves, what was decided and what the links have left, as JSON values."""
        now_s = _now_s()
        budgets = {
            region: {
                "bandwidth": str(self._fleet.watch.rules.get(region, LinkRule()).bandwidth),
                "available_bytes_per_s": round(link.available_bytes_per_s),
                "budget_bytes": round(
                    self.replication.balance_bytes(region, self._rate(region), now_s)
                ),
            }
            for region, link in self._fleet.links().items()
        }
        return {
            "moves": self.log.recent(limit),
            "running": len(self._running),
            "verdicts": {str(verdict): n for verdict, n in self.log.verdicts.items()},
            "links": budgets,
            "bytes_per_token": {name: round(b, 1) for name, b in self._bytes_per_token.items()},
        }

    def _remote(self, source: NodeRecord, destination: NodeRecord) -> str:
        """Return the region at the other end of the link."""
        return destination.region if source.region == self._fleet.region else source.region

    def _rate(self, region: str) -> float:
        """Return this gateway's part of what a link carries; both directions count as one."""
        link = self._fleet.links().get(region)
        gateways = sum(
            node.role is Role.GATEWAY and node.region == self._fleet.region
            for node in self._fleet.view.nodes.values()
        )
        return link.available_bytes_per_s / max(gateways, 1) if link else 0.0

    def _wanted(self, decision: Decision, prompt: HashedPrompt) -> Wanted:
        assert decision.move is not None
        source, destination = decision.move.source, decision.prefill
        region = self._remote(source, destination)
        tokens = decision.move.tokens
        block_hash, _ = prompt.hash_at(min(tokens, prompt.num_tokens))
        name = f"{destination.pool}\0{destination.model_id}\0{block_hash:x}\0{tokens}"
        has_pools = bool(
            source.pool_url and destination.pool_url and source.pool != destination.pool
        )
        return Wanted(
            name=xxhash.xxh3_128_digest(name.encode()),
            gain_tokens=tokens - decision.prefix_tokens,
            link=self._fleet.watch.rules.get(region, LinkRule()),
            available_bytes_per_s=self._rate(region),
            tokens_per_s=self._fleet.watch.tokens_per_s.get(destination.region, 0.0),
            bytes_per_token=self._bytes_per_token.get(destination.model_id, 0.0),
            has_pools=has_pools,
        )

    def _start(
        self,
        name: bytes,
        cause: Cause,
        source: NodeRecord,
        destination: NodeRecord,
        salted: Salted,
    ) -> asyncio.Task[FetchAnswer]:
        task = self._tasks.start(self._fetch(cause, source, destination, salted))
        self._running[name] = task
        task.add_done_callback(lambda _: self._running.pop(name, None))
        return task

    async def _fetch(
        self, cause: Cause, source: NodeRecord, destination: NodeRecord, salted: Salted
    ) -> FetchAnswer:
        """Have the destination's host fetch the prefix, and note what came of it. Never raises."""
        prompt = salted.prompt
        wanted = FetchRequest(
            source.pool_url,
            destination.model_id,
            prompt.raw,
            cache_salt=salted.cache_salt,
            extra_key=salted.extra_key,
        )
        try:
            answer = await self._ask(destination.pool_url, wanted)
            if max(answer.tokens, answer.had_tokens) > prompt.num_tokens:
                raise ProtocolError(f"{answer.tokens} tokens of a prompt of {prompt.num_tokens}")
        except Exception as error:  # it runs in a shared group: it must not end that
            answer = FetchAnswer(Outcome.FAILED, detail=str(error) or type(error).__name__)
        if answer.outcome is Outcome.FAILED:
            logger.warning("%s to %s: %s", source.name, destination.name, answer.detail)
        self.log.note(cause, source, destination, answer, prompt_tokens=prompt.num_tokens)
        self.replication.note_moved(self._remote(source, destination), answer.num_bytes)
        if answer.tokens and answer.outcome in (Outcome.MOVED, Outcome.NOTHING):
            self._fleet.note_moved(destination, prompt, answer.tokens)
        self._learn(destination.model_id, answer)
        return answer

    async def _ask(self, url: str, wanted: FetchRequest) -> FetchAnswer:
        tls: ssl.SSLContext | bool = True if self._tls is None else self._tls()
        async with self._session.post(
            url + FETCH_PATH,
            data=wanted.encode(),
            timeout=aiohttp.ClientTimeout(total=FETCH_S),
            ssl=tls,
            allow_redirects=False,
        ) as response:
            length = response.content_length
            if response.status != 200 or length is None or length > _MAX_ANSWER_BYTES:
                text = (await response.content.read(200)).decode(errors="replace")
                raise ProtocolError(f"{url}: HTTP status {response.status}: {text}")
            return FetchAnswer.from_json(await response.json())

    def _learn(self, model_id: str, answer: FetchAnswer) -> None:
        gained = answer.tokens - answer.had_tokens
        if answer.outcome is not Outcome.MOVED or gained <= 0:
            return
        seen = answer.num_bytes / gained
        before = self._bytes_per_token.get(model_id, seen)
        self._bytes_per_token[model_id] = before + _LEARN * (seen - before)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
