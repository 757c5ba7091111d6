"""SGLang's own transfer backends, as the way to peers of our region.

Each class is SGLang's, with three things changed: the composite manager registers it, the address
of a peer comes from the composite's directory, and an engine without a GPU has host memory.

Source: sglang 0.5.23 srt/disaggregation/mooncake/conn.py, srt/disaggregation/nixl/conn.py.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prfaas.errors import PrfaasError
from prfaas.transfer_section import LocalBackend

_PACKAGES = {
    LocalBackend.MOONCAKE: ("mooncake.engine", "prfaas[mooncake]"),
    LocalBackend.NIXL: ("nixl._api", "prfaas[nixl]"),
}
#: What an engine without a GPU needs in its environment before the backend is loaded.
_HOST_ENVIRONMENT = {
    LocalBackend.MOONCAKE: {"MOONCAKE_PROTOCOL": "tcp"},
    LocalBackend.NIXL: {"UCX_TLS": "tcp,self"},
}


@dataclass(frozen=True, slots=True)
class LocalClasses:
    """The classes of one backend. `manager` takes what a KV manager takes."""

    manager: type[Any]
    sender: type[Any]
    receiver: type[Any]


def package_problem(backend: LocalBackend) -> str | None:
    """Return why a backend cannot be used in this environment, and what to do."""
    if backend is LocalBackend.LANES:
        return None
    module, extra = _PACKAGES[backend]
    try:
        importlib.import_module(module)
    except (ImportError, OSError) as error:
        return f"transfer.local_backend = {backend}: {error}; pip install '{extra}'"
    return None


def local_classes(backend: LocalBackend, *, device: str, gpu_id: int, host: str) -> LocalClasses:
    """Return the classes of a backend, made ready for this engine.

    Raises:
        PrfaasError: the backend is not installed.
    """
    if device == "cpu":
        for name, value in _HOST_ENVIRONMENT[backend].items():
            os.environ.setdefault(name, value)
    problem = package_problem(backend)
    if problem:
        raise PrfaasError(problem)
    from sglang.srt.disaggregation.utils import KVClassType, TransferBackend, get_kv_class

    manager, sender, receiver = (
        get_kv_class(TransferBackend(str(backend)), kind)
        for kind in (KVClassType.MANAGER, KVClassType.SENDER, KVClassType.RECEIVER)
    )
    if backend is LocalBackend.MOONCAKE:
        _start_mooncake(host, gpu_id)
        changes = {"supports_host_tensor_indices": False} if device == "cpu" else {}
        sender = type("LocalSender", (sender,), changes)
    elif device == "cpu":
        manager = type("HostNixlManager", (manager,), {"agent": _host_agent()})
    return LocalClasses(
        manager=type("LocalManager", (manager,), {"register_to_bootstrap": _registered_already}),
        sender=sender,
        receiver=type(
            "LocalReceiver", (receiver,), {"_get_bootstrap_info_from_server": _local_address}
        ),
    )


def _registered_already(_: Any) -> None:
    """Leave it to the composite manager, which registers both ways to this engine."""


def _local_address(
    self: Any, _dp_rank: int, _cp_rank: int, _tp_rank: int, pp_rank: int
) -> dict[str, Any]:
    """Return where the peer's own local manager listens; the composite looked it up."""
    host, port = self.kv_mgr.local_addresses[self.bootstrap_addr]
    return {"rank_ip": host, "rank_port": port, "pp_rank": pp_rank}


def _start_mooncake(host: str, gpu_id: int) -> None:
    from sglang.srt.distributed.device_communicators import mooncake_transfer_engine

    mooncake_transfer_engine.init_mooncake_transfer_engine(hostname=host, gpu_id=gpu_id)


def _host_agent() -> property:
    """Return the attribute `agent` of a NIXL manager whose pools are in host memory."""

    def read(manager: Any) -> Any:
        return manager.__dict__["_agent"]

    def write(manager: Any, agent: Any) -> None:
        manager.__dict__["_agent"] = _HostAgent(agent)

    return property(read, write)


class _HostAgent:
    """A NIXL agent for whom all memory is DRAM, whatever SGLang calls it."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._agent, name)
        return _in_dram(found) if callable(found) else found


def _in_dram(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **named: Any) -> Any:
        renamed = {name: _dram(value) for name, value in named.items()}
        return call(*map(_dram, args), **renamed)

    return called


def _dram(value: Any) -> Any:
    return "DRAM" if isinstance(value, str) and value == "VRAM" else value
