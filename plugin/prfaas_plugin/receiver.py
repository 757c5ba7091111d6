"""The decode's end of one room.

Source: sglang 0.5.23 srt/disaggregation/common/conn.py (CommonKVReceiver).
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sglang.srt.disaggregation.base.conn import KVPoll, KVTransferDestination
from sglang.srt.disaggregation.common.conn import CommonKVReceiver

from prfaas.errors import TransferError
from prfaas_plugin.directory import take_refusal


class PrfaasKVReceiver(CommonKVReceiver):  # type: ignore[misc]
    """Opens the room on the lanes to its prefill; `poll()` only reads a status."""

    def init(self, prefill_dp_rank: int) -> None:
        """Look the prefill up; a refused one fails the room with the reason."""
        refusal = take_refusal(self.bootstrap_addr, self.kv_mgr.prefill_info_table)
        if refusal is not None:
            self._fail(refusal)
            return
        super().init(prefill_dp_rank)

    def _fail(self, reason: str) -> None:
        self.kv_mgr.record_failure(self.bootstrap_room, reason)
        self.kv_mgr.update_status(self.bootstrap_room, KVPoll.Failed)
        self.conclude_state = KVPoll.Failed

    def _get_bootstrap_info_from_server(
        self, prefill_dp_rank: int, prefill_cp_rank: int, target_tp_rank: int, target_pp_rank: int
    ) -> dict[str, Any] | None:
        ranks = (prefill_dp_rank, prefill_cp_rank, target_tp_rank, target_pp_rank)
        known: dict[str, Any] | None = self.kv_mgr.known_route(self.bootstrap_addr, ranks)
        return known or super()._get_bootstrap_info_from_server(*ranks)

    def _register_kv_args(self) -> bool:
        """Dial the lanes; the layout is checked in their handshake, not by an own message."""
        for info in self.bootstrap_infos:
            self.kv_mgr.join_prefill(_address(info), self.bootstrap_addr)
        return True

    def send_metadata(
        self,
        kv_indices: NDArray[np.int32],
        aux_index: int | None = None,
        state_indices: list[Any] | None = None,
        decode_prefix_len: int | None = None,
        destination: Any = KVTransferDestination.DEVICE,
        device_kv_indices: NDArray[np.int32] | None = None,
    ) -> None:
        """Grant this request's pages, state slots and metadata row to the prefill."""
        del device_kv_indices
        if destination != KVTransferDestination.DEVICE:
            raise NotImplementedError("host KV destinations are not supported")
        if self.bootstrap_infos is None:
            self._fail(f"could not learn the ranks of prefill {self.bootstrap_addr}")
            return
        grants = self.kv_mgr.items_by_group(kv_indices, state_indices, aux_index)
        try:
            self.kv_mgr.receives.open_room(
                self.bootstrap_room,
                address=_address(self.bootstrap_infos[0]),
                grants=grants,
                prefix_tokens=decode_prefix_len or 0,
            )
        except TransferError as error:
            self._fail(str(error))
            return
        self.init_time = time.time()

    def _send_abort_notification(self, *, force_arm: bool = False) -> None:
        """Close the room to writes and tell the prefill; then the pages may be freed."""
        del force_arm
        self.kv_mgr.receives.abort(self.bootstrap_room, "decode_aborted")

    def _clear(self) -> None:
        if self.kv_mgr.request_status.get(self.bootstrap_room) != KVPoll.Success:
            self.kv_mgr.receives.abort(self.bootstrap_room, "decode_gave_up")
        super()._clear()
        self.kv_mgr.receives.forget(self.bootstrap_room)


def _address(info: dict[str, Any]) -> tuple[str, int]:
    return str(info["rank_ip"]), int(info["rank_port"])
