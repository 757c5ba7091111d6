"""NIXL over UCX, as SGLang's `nixl` drives it, with memory registered as DRAM."""

import base64
import time
from typing import Any

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t
from pages import PAGE_BYTES


def _agent(name: str, memory: Any) -> nixl_agent:
    sync = nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    config = nixl_agent_config(backends=["UCX"], sync_mode=sync)
    agent = nixl_agent(name, config)
    if not agent.register_memory([(memory.base, memory.size, 0, "")], "DRAM"):
        raise RuntimeError("NIXL does not take the memory")
    return agent


def receive_side(host: str, memory: Any) -> tuple[str, nixl_agent]:
    agent = _agent("receive", memory)
    return base64.b64encode(agent.get_agent_metadata()).decode(), agent


class SendSide:
    def __init__(self, host: str, memory: Any, known: str) -> None:
        self.agent = _agent("send", memory)
        self.metadata, self.peer = base64.b64decode(known), ""

    def move(self, local: np.ndarray, remote: np.ndarray) -> None:
        if not self.peer:
            self.peer = self.agent.add_remote_agent(self.metadata)
        descs = [self.agent.get_xfer_descs(_rows(pages), "DRAM") for pages in (local, remote)]
        handle = self.agent.initialize_xfer("WRITE", *descs, self.peer)
        try:
            state = self.agent.transfer(handle)
            while state not in ("DONE", "ERR"):
                time.sleep(0.0002)
                state = self.agent.check_xfer_state(handle)
        finally:
            self.agent.release_xfer_handle(handle)
        if state == "ERR":
            raise RuntimeError("NIXL's transfer failed")


def _rows(pages: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(pages), 3), np.uint64)
    rows[:, 0], rows[:, 1] = pages, PAGE_BYTES
    return rows
