"""One engine, two ways: lanes to peers of other regions, a local backend to those of our own.

A manager holds both. A decode knows from a prefill's bootstrap where that one is, and opens each
room the one way or the other. A prefill does not know who will decode: a room has a sender of each
kind until a decode opened it the one way, and the other is dropped.
"""

import logging
from typing import Any

from requests import RequestException
from sglang.srt.disaggregation.base.conn import KVPoll
from sglang.srt.disaggregation.utils import DisaggregationMode

from prfaas.transfer_section import LocalBackend
from prfaas_plugin.local_backend import local_classes
from prfaas_plugin.manager import Address, PrfaasKVManager
from prfaas_plugin.peer_note import PEER_PATH, PeerNote
from prfaas_plugin.receiver import PrfaasKVReceiver
from prfaas_plugin.sender import PrfaasKVSender
from prfaas_plugin.settings import read_settings

logger = logging.getLogger(__name__)

_HTTP_TIMEOUT_S = 5.0


class CompositeKVManager(PrfaasKVManager):
    """The manager of the lanes, with one of SGLang's beside it as `local`."""

    def __init__(
        self, args: Any, disaggregation_mode: Any, server_args: Any, is_mla_backend: bool = False
    ) -> None:
        settings = read_settings()
        self.backend: LocalBackend = settings.transfer.local_backend
        self.classes = local_classes(
            self.backend,
            device=server_args.device,
            gpu_id=args.gpu_id,
            host=settings.host,
        )
        self.supports_role_switch = bool(self.classes.manager.supports_role_switch)
        # Before ours: the base's constructor registers, and then says where the local one listens.
        self.local = self.classes.manager(args, disaggregation_mode, server_args, is_mla_backend)
        self.local.local_addresses = {}
        super().__init__(args, disaggregation_mode, server_args, is_mla_backend)
        if disaggregation_mode == DisaggregationMode.DECODE:
            self.local.prefill_info_table = self.prefill_info_table

    def register_to_bootstrap(self) -> None:
        """Register the local manager and our region, then the lanes: who finds one finds both."""
        note = PeerNote(
            rank=self.kv_args.engine_rank,
            region=self.settings.region,
            backend=str(self.backend),
            host=self.local.local_ip,
            port=self.local.rank_port,
        )
        url = f"http://{self.bootstrap_host}:{self.bootstrap_port}{PEER_PATH}"
        # SGLang's own way of waiting for a bootstrap server that is still starting.
        self._register_topology_row(url, note.to_json())
        super().register_to_bootstrap()

    def is_local(self, bootstrap_addr: str) -> bool:
        """Say whether a prefill is reached by the local backend."""
        return bootstrap_addr in self.local.local_addresses

    def _load_prefill(self, bootstrap_addr: str) -> bool:
        """Learn which way a prefill is, and then its ranks: then SGLang opens rooms at once."""
        address = self._local_address(bootstrap_addr)
        if address is not None:
            self.local.local_addresses[bootstrap_addr] = address
        loaded = super()._load_prefill(bootstrap_addr)
        if loaded:
            way = self.backend if address is not None else "lanes"
            logger.info("prefill %s sends to us by %s", bootstrap_addr, way)
        return loaded

    def _local_address(self, bootstrap_addr: str) -> Address | None:
        """Return where a prefill of our region serves our local backend; None: take the lanes.

        Workers pair by rank: TP sizes are equal.
        """
        try:
            answer = self._http.get(
                f"http://{bootstrap_addr}{PEER_PATH}",
                params={"rank": self.kv_args.engine_rank},
                timeout=_HTTP_TIMEOUT_S,
            )
            note = PeerNote.parse(answer.json()) if answer.ok else None
        except (RequestException, ValueError) as error:
            logger.warning("prefill %s says nothing of its region: %s", bootstrap_addr, error)
            return None
        if note is None or (note.region, note.backend) != (self.settings.region, self.backend):
            return None
        return note.host, note.port

    def _handle_node_failure(self, failed_bootstrap_addr: str) -> None:
        """Fail the rooms of a lost prefill, whichever way they were opened."""
        if self.local.local_addresses.pop(failed_bootstrap_addr, None) is not None:
            self.local._handle_node_failure(failed_bootstrap_addr)  # noqa: SLF001 - as ours
        super()._handle_node_failure(failed_bootstrap_addr)

    def teardown(self) -> None:
        """Close both transports."""
        super().teardown()
        self.local.teardown()


class CompositeKVReceiver:
    """A decode's end of one room; which way is known once the prefill is, at `init`."""

    def __init__(
        self, mgr: CompositeKVManager, bootstrap_addr: str, bootstrap_room: int | None = None
    ) -> None:
        self._manager = mgr
        self._inner: Any = PrfaasKVReceiver(mgr, bootstrap_addr, bootstrap_room)

    #: SGLang calls it on the class.
    query_prefill_dp_ranks = staticmethod(PrfaasKVReceiver.query_prefill_dp_ranks)

    def init(self, prefill_dp_rank: int) -> None:
        """Take the way to this prefill."""
        lanes = self._inner
        if self._manager.is_local(lanes.bootstrap_addr):
            lanes.clear()
            self._inner = self._manager.classes.receiver(
                self._manager.local, lanes.bootstrap_addr, lanes.bootstrap_room
            )
        self._inner.init(prefill_dp_rank)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class CompositeKVSender:
    """A prefill's end of one room; which way is known once a decode has opened it."""

    def __init__(
        self,
        mgr: CompositeKVManager,
        bootstrap_addr: str,
        bootstrap_room: int,
        req_has_disagg_prefill_dp_rank: bool = False,
    ) -> None:
        args = (bootstrap_addr, bootstrap_room, req_has_disagg_prefill_dp_rank)
        self._inner: Any = PrfaasKVSender(mgr, *args)
        self._other: Any = mgr.classes.sender(mgr.local, *args)

    def poll(self) -> Any:
        """Return the room's status."""
        if self._other is not None:
            self._choose()
        return self._inner.poll()

    def _choose(self) -> None:
        """Drop one of the two as soon as something happened to the other."""
        if _is_waiting(self._inner) and not _is_waiting(self._other):
            self._inner, self._other = self._other, self._inner
        if not _is_waiting(self._inner):
            self._other.clear()
            self._other = None

    def abort(self) -> None:
        """Give the room up, both ways."""
        for sender in (self._inner, self._other):
            if sender is not None:
                sender.abort()

    def clear(self) -> None:
        """Drop the room, both ways."""
        for sender in (self._inner, self._other):
            if sender is not None:
                sender.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Let what SGLang sets reach the sender that it is meant for."""
        if name in ("_inner", "_other"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)


def _is_waiting(sender: Any) -> bool:
    status = sender.kv_mgr.request_status.get(sender.bootstrap_room, KVPoll.Bootstrapping)
    return bool(status == KVPoll.Bootstrapping)
