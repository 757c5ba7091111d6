"""The KV manager: one per scheduler process, in front of one transport node.

SGLang's base classes keep the rooms' status and the bootstrap; everything that moves between peers,
control included, goes over our lanes. SGLang's own ZMQ control socket stays unused.

Source: sglang 0.5.23 srt/disaggregation/common/conn.py.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sglang.srt.disaggregation.base.conn import KVPoll
from sglang.srt.disaggregation.common.conn import CommonKVManager
from sglang.srt.disaggregation.utils import DisaggregationMode

from prfaas.errors import PrfaasError, TransferError
from prfaas.transfer_section import Pipelining
from prfaas_plugin.directory import PrefillDirectory
from prfaas_plugin.geometry import AUX, KV, layout_of, pointers_of, state_group
from prfaas_plugin.layerwise import hooks
from prfaas_plugin.layerwise.pipeline import LayerPipeline
from prfaas_plugin.layerwise.readiness import readiness_of
from prfaas_plugin.peer_http import install_peer_http
from prfaas_plugin.settings import read_settings
from prfaas_transport import (
    Memory,
    PeerLost,
    PeerUp,
    ReceiveEvent,
    ReceiveNode,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
    SendEvent,
    SendNode,
    StatsServer,
    TransportConfig,
    serve_stats,
)
from prfaas_transport.security import channel_factory, read_secret
from prfaas_transport.tls import TlsChannels

logger = logging.getLogger(__name__)

_ROUTE_KEYS = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")

#: What a room is while its prefill may send into it.
_SENDING = (KVPoll.WaitingForInput, KVPoll.Transferring)

Address = tuple[str, int]
Indices = NDArray[np.int64]


class PrfaasKVManager(CommonKVManager):  # type: ignore[misc]
    """Owns the transport node of a prefill (`SendNode`) or decode (`ReceiveNode`) scheduler."""

    #: SGLang may build the other role's manager in this process once `teardown` returned.
    supports_role_switch = True

    sends: SendNode
    pipeline: LayerPipeline
    receives: ReceiveNode

    def __init__(
        self, args: Any, disaggregation_mode: Any, server_args: Any, is_mla_backend: bool = False
    ) -> None:
        if server_args.device != "cpu":
            raise PrfaasError(
                f"prfaas moves KV caches in host memory only so far, and this engine's device is "
                f"{server_args.device}"
            )
        self.settings = read_settings()
        self._http = install_peer_http(self.settings.security)
        self._channels = channel_factory(self.settings.security, self.settings.identity)
        #: A peer per scheduler process: ranks of one node must not take each other's place.
        self.node_id = f"{self.settings.node}/{args.engine_rank}"
        self.layout = layout_of(args)
        self._memory = Memory(self.layout, pointers_of(args))
        self._groups = [state_group(i, kind) for i, kind in enumerate(args.state_types)]
        self._stats_server: StatsServer | None = None
        self._opened_at: dict[int, float] = {}
        self._bootstrap_of: dict[Address, str] = {}
        self._routes: dict[str, tuple[tuple[int, int, int, int], dict[str, Any]]] = {}
        # The base's constructor calls register_to_bootstrap(), which starts a prefill's node.
        super().__init__(args, disaggregation_mode, server_args, is_mla_backend)
        # SGLang's control socket is reachable from anywhere, and nothing here reads it.
        self.server_socket.close(linger=0)
        if disaggregation_mode == DisaggregationMode.DECODE:
            self.directory = PrefillDirectory(self._load_prefill)
            self._start_receiving()
        node = self.sends if disaggregation_mode == DisaggregationMode.PREFILL else self.receives
        if self.settings.stats_socket:
            # The agent listens to the first worker; each other one has a socket of its own.
            suffix = f".{args.engine_rank}" if args.engine_rank else ""
            path = self.settings.stats_socket + suffix
            self._stats_server = serve_stats(path, lambda: self._stats(node))
        logger.info(
            "prfaas %s node %s: %s",
            disaggregation_mode.value,
            self.settings.node,
            ", ".join(f"{g.name}={g.item_bytes} B/item" for g in self.layout.groups),
        )

    # ---- both roles ----------------------------------------------------------------------------

    def _transport_config(self) -> TransportConfig:
        values = asdict(self.settings.transfer)
        values["blank_groups"] = frozenset(values["blank_groups"])
        del values["digests"], values["pipelining"], values["local_backend"]
        values["checksums"] = self.settings.checksums
        return TransportConfig(
            **values,
            channel_factory=self._channels,
            secret=read_secret(self.settings.security),
        )

    def _stats(self, node: SendNode | ReceiveNode) -> dict[str, Any]:
        """Return the transport's counters, and what protects them."""
        security: dict[str, Any] = {"mode": str(self.settings.security.mode)}
        if isinstance(self._channels, TlsChannels):
            security |= self._channels.stats()
        layout = {"digest": self.layout.digest().hex()[:16], "tp_size": self.attn_tp_size}
        stats = {**node.stats(), "security": security, "layout": layout}
        if node is getattr(self, "sends", None):
            mode = self.settings.transfer.pipelining
            stats["pipelining"] = {"mode": str(mode), **self.pipeline.counters.to_json()}
        return stats

    def items_by_group(
        self, kv: NDArray[np.integer[Any]] | None, state: Sequence[Any] | None, aux: int | None
    ) -> dict[str, Indices]:
        """Return SGLang's indices by group name; what is None is left out.

        `kv` are page indices, `state` one index sequence (or None) per state component, `aux` a row
        of the metadata buffers.
        """
        groups: dict[str, Indices] = {}
        if kv is not None:
            groups[KV] = np.asarray(kv, dtype=np.int64).reshape(-1)
        for name, indices in zip(self._groups, state or (), strict=False):
            if indices is not None and len(indices):
                groups[name] = np.asarray(indices, dtype=np.int64).reshape(-1)
        if aux is not None:
            groups[AUX] = np.array([aux], dtype=np.int64)
        return groups

    def record_failure(self, bootstrap_room: int, failure_reason: str) -> None:
        """Keep the first reason of a room: what follows from it would hide the cause."""
        with self.failure_lock:
            self.failure_records.setdefault(bootstrap_room, failure_reason)

    def _fail_room(self, room: int, reason: str) -> None:
        if room in self.request_status:
            self.record_failure(room, reason)
            self.update_status(room, KVPoll.Failed)

    def teardown(self) -> None:
        """Close the transport with its threads and sockets; the pools' memory is SGLang's.

        Called by SGLang's scheduler, which is idle then, before it changes its role.
        """
        if self._stats_server is not None:
            self._stats_server.close()
        if self.disaggregation_mode == DisaggregationMode.PREFILL:
            self.pipeline.close()
            self.sends.close()
        else:
            self._heartbeat_shutdown.set()
            self.directory.close()
            self.receives.close()
        self._zmq_ctx.destroy(linger=0)
        logger.info("prfaas %s node %s closed", self.disaggregation_mode.value, self.settings.node)

    # ---- prefill -------------------------------------------------------------------------------

    def register_to_bootstrap(self) -> None:
        """Start listening, then register with our lanes' address in the place of the ZMQ port."""
        self.sends = SendNode(
            layout=self.layout,
            memory=self._memory,
            node_id=self.node_id,
            host=self.local_ip,
            config=self._transport_config(),
            on_event=self._on_send_event,
        )
        self.pipeline = LayerPipeline(
            self,
            sends=self.sends,
            readiness=readiness_of(self.server_args.device),
            is_live=lambda room: self.request_status.get(room) in _SENDING,
        )
        if self.settings.transfer.pipelining is Pipelining.LAYER:
            hooks.install()
        self.rank_port = self.sends.address[1]
        super().register_to_bootstrap()

    def _on_send_event(self, event: SendEvent) -> None:
        """Take one event of the transport; on its I/O thread."""
        match event:
            case RoomOpened():
                self._drop_unclaimed()
                self._opened_at[event.room] = time.monotonic()
                self.req_to_decode_prefix_len[event.room] = event.prefix_tokens
                self.update_status(event.room, KVPoll.WaitingForInput)
            case RoomSent():
                self.pipeline.sent(event.room)
                self.conclude_transfer(bootstrap_room=event.room, status=KVPoll.Success)
            case RoomFailed():
                logger.warning("room %s failed: %s %s", event.room, event.reason, event.detail)
                self._fail_room(event.room, f"{event.reason}: {event.detail}")
            case PeerLost():
                logger.warning("decode peer %s lost: %s", event.peer, event.reason)

    def _drop_unclaimed(self) -> None:
        """Forget rooms that a decode opened and whose request never came here."""
        horizon = time.monotonic() - self.settings.transfer.room_timeout_s
        for room, opened_at in list(self._opened_at.items()):
            if opened_at > horizon:
                return
            self.forget_sent(room)
            self.request_status.pop(room, None)
            self.req_to_decode_prefix_len.pop(room, None)
            self.failure_records.pop(room, None)

    def forget_sent(self, room: int) -> None:
        """Drop the memory of a room that the scheduler has concluded."""
        self._opened_at.pop(room, None)
        self.sends.forget(room)

    def add_transfer_request(
        self,
        bootstrap_room: int,
        kv_indices: NDArray[np.int32],
        index_slice: slice,
        is_last_chunk: bool,
        aux_index: int | None = None,
        state_indices: list[Any] | None = None,
        num_kv_tokens: int | None = None,
        *,
        wait_event: Any = None,
        indices_event: Any = None,
        trace_ctx: Any = None,
    ) -> None:
        """Queue what one prefill chunk computed; called by SGLang's scheduler, never blocks.

        `index_slice` is where the chunk's pages lie in the decode's grant. The states and the
        metadata row come with the last chunk, when they are final. What went layer by layer is not
        sent again.
        """
        del num_kv_tokens, indices_event, trace_ctx
        if self.request_status.get(bootstrap_room) in (None, KVPoll.Failed):
            return
        self.update_status(bootstrap_room, KVPoll.Transferring)
        groups = self.items_by_group(kv_indices, state_indices, aux_index)
        try:
            self.pipeline.send(bootstrap_room, groups, index_slice.start, wait_event)
            if is_last_chunk:
                totals = {name: len(items) for name, items in groups.items()}
                self.pipeline.finishing(bootstrap_room)
                self.sends.finish(bootstrap_room, totals | {KV: index_slice.stop})
        except TransferError as error:
            self.sends.abort(bootstrap_room, error.reason, error.detail)
            self.conclude_failure(bootstrap_room=bootstrap_room, failure_reason=str(error))

    # ---- decode --------------------------------------------------------------------------------

    def _start_receiving(self) -> None:
        self.receives = ReceiveNode(
            layout=self.layout,
            memory=self._memory,
            node_id=self.node_id,
            source_host=self.local_ip,
            config=self._transport_config(),
            on_event=self._on_receive_event,
        )

    def _on_receive_event(self, event: ReceiveEvent) -> None:
        """Take one event of the transport; on its I/O thread."""
        match event:
            case RoomReceived():
                self.apply_prefill_status(
                    bootstrap_room=event.room, status=KVPoll.Success, prefill_rank=0
                )
            case RoomFailed():
                logger.warning("room %s failed: %s %s", event.room, event.reason, event.detail)
                self._fail_room(event.room, f"{event.reason}: {event.detail}")
            case PeerUp():
                logger.info("prefill peer %s at %s is up", event.node_id, event.address)
            case PeerLost():
                self._on_prefill_lost(event)

    def _on_prefill_lost(self, event: PeerLost) -> None:
        """Forget what was learnt of a prefill, so that its next life is asked for afresh."""
        logger.warning("prefill peer %s at %s lost: %s", event.peer, event.address, event.reason)
        bootstrap = self._bootstrap_of.pop(event.address, None) if event.address else None
        if bootstrap is not None:
            self._routes.pop(bootstrap, None)
            self._handle_node_failure(bootstrap)

    def try_ensure_parallel_info(self, bootstrap_addr: str) -> bool:
        """Return True once the prefill's ranks are known or it was refused; hardly blocks."""
        return self.directory.ensure(bootstrap_addr, self.prefill_info_table)

    def _load_prefill(self, bootstrap_addr: str) -> bool:
        """Learn a prefill's ranks and dial its lanes; on a thread of the directory.

        Raises:
            PrfaasError: it does not fit this decode.
        """
        try:
            known = super().try_ensure_parallel_info(bootstrap_addr)
        except (RuntimeError, AssertionError) as error:  # how SGLang refuses a mismatch
            raise PrfaasError(str(error)) from None
        if not known:
            return False
        info = self.prefill_info_table[bootstrap_addr]
        if info.attn_tp_size != self.attn_tp_size:
            self.prefill_info_table.pop(bootstrap_addr)
            raise PrfaasError(
                f"prefill runs at TP {info.attn_tp_size}, decode at TP {self.attn_tp_size}; "
                f"start both with the same --tp-size"
            )
        ranks = (0, self.attn_cp_rank, info.target_tp_rank, info.target_pp_ranks[0])
        query = dict(zip(_ROUTE_KEYS, ranks, strict=True))
        answer = self._http.get(f"http://{bootstrap_addr}/route", params=query, timeout=5)
        if answer.ok:
            route = answer.json()
            self._routes[bootstrap_addr] = (ranks, route)
            self.join_prefill((str(route["rank_ip"]), int(route["rank_port"])), bootstrap_addr)
        return True

    def known_route(
        self, bootstrap_addr: str, ranks: tuple[int, int, int, int]
    ) -> dict[str, Any] | None:
        """Return what `/route` said of one prefill rank (dp, cp, tp, pp), if it was asked."""
        known = self._routes.get(bootstrap_addr)
        if known is None or known[0] != ranks:
            return None
        return {**known[1], "pp_rank": ranks[3]}

    def join_prefill(self, address: Address, bootstrap_addr: str) -> None:
        """Dial a prefill's lanes, if they are not up."""
        self._bootstrap_of[address] = bootstrap_addr
        self.receives.connect(address)
