"""Mooncake's Transfer Engine over TCP, as SGLang's `mooncake_tcp` drives it."""

from typing import Any

import numpy as np
from mooncake.engine import TransferEngine
from pages import PAGE_BYTES


def _engine(host: str, memory: Any) -> TransferEngine:
    engine = TransferEngine()
    if engine.initialize(host, "P2PHANDSHAKE", "tcp", ""):
        raise RuntimeError("Mooncake's engine does not start")
    if engine.register_memory(memory.base, memory.size):
        raise RuntimeError("Mooncake does not take the memory")
    return engine


def receive_side(host: str, memory: Any) -> tuple[str, TransferEngine]:
    engine = _engine(host, memory)
    return f"{host}:{engine.get_rpc_port()}", engine


class SendSide:
    def __init__(self, host: str, memory: Any, known: str) -> None:
        self.engine, self.session = _engine(host, memory), known

    def move(self, local: np.ndarray, remote: np.ndarray) -> None:
        lengths = [PAGE_BYTES] * len(local)
        ret = self.engine.batch_transfer_sync_write(
            self.session, local.tolist(), remote.tolist(), lengths
        )
        if ret:
            raise RuntimeError(f"Mooncake returned {ret}")
