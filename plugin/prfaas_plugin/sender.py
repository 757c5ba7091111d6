"""The prefill's end of one room.

Source: sglang 0.5.23 srt/disaggregation/common/conn.py (CommonKVSender).
"""

from sglang.srt.disaggregation.base.conn import KVPoll
from sglang.srt.disaggregation.common.conn import CommonKVSender


class PrfaasKVSender(CommonKVSender):  # type: ignore[misc]
    """Hands chunks to the manager; `poll()` only reads a status."""

    def abort(self) -> None:
        """Give the room up and tell the decode."""
        super().abort()
        self.kv_mgr.sends.abort(self.bootstrap_room, "prefill_aborted")
        self.kv_mgr.pipeline.forget(self.bootstrap_room)

    def clear(self) -> None:
        """Drop the room; one that did not succeed is aborted first, so the decode learns of it."""
        if self.kv_mgr.request_status.get(self.bootstrap_room) != KVPoll.Success:
            self.kv_mgr.sends.abort(self.bootstrap_room, "prefill_failed")
        super().clear()
        self.kv_mgr.pipeline.forget(self.bootstrap_room)
        self.kv_mgr.forget_sent(self.bootstrap_room)
