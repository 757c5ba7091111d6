"""Registration of the backend `prfaas` with SGLang's disaggregation code.

Source: sglang 0.5.23 srt/disaggregation/utils.py (TransferBackend, get_kv_class).
"""

from collections.abc import Callable
from typing import Any

from prfaas.transfer_section import LocalBackend
from prfaas_plugin.settings import read_settings

NAME = "prfaas"
_GET_KV_CLASS = "sglang.srt.disaggregation.utils.get_kv_class"


def install() -> None:
    """Make `--disaggregation-transfer-backend prfaas` a choice that resolves to our classes."""
    from sglang.srt.arg_groups.choices import DISAGG_TRANSFER_BACKEND_CHOICES
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import add_disagg_transfer_backend_choices

    if NAME not in DISAGG_TRANSFER_BACKEND_CHOICES:
        add_disagg_transfer_backend_choices([NAME])
    _add_enum_member()
    HookRegistry.register(_GET_KV_CLASS, _get_kv_class, HookType.AROUND)


def _add_enum_member() -> None:
    """Let `TransferBackend("prfaas")` resolve.

    The enum has no registration function, so this adds a pseudo-member to its value map; it is the
    part most likely to break with another SGLang release, and `prfaas_plugin.check` tests it.
    """
    from sglang.srt.disaggregation.utils import TransferBackend

    if NAME in TransferBackend._value2member_map_:
        return
    member = object.__new__(TransferBackend)
    member._name_ = NAME.upper()
    member._value_ = NAME
    member.__objclass__ = TransferBackend
    member._sort_order_ = len(TransferBackend)
    TransferBackend._value2member_map_[NAME] = member
    TransferBackend._member_map_[member._name_] = member
    TransferBackend._member_names_.append(member._name_)


def _get_kv_class(original: Callable[[Any, Any], Any], transfer_backend: Any, kind: Any) -> Any:
    """Answer for our backend, leave every other to SGLang."""
    if getattr(transfer_backend, "value", transfer_backend) != NAME:
        return original(transfer_backend, kind)
    from sglang.srt.disaggregation.base import KVArgs
    from sglang.srt.disaggregation.utils import KVClassType

    from prfaas_plugin import composite
    from prfaas_plugin.bootstrap import PrfaasBootstrapServer
    from prfaas_plugin.manager import PrfaasKVManager
    from prfaas_plugin.receiver import PrfaasKVReceiver
    from prfaas_plugin.sender import PrfaasKVSender

    is_composite = read_settings().transfer.local_backend is not LocalBackend.LANES
    classes = {
        KVClassType.KVARGS: KVArgs,
        KVClassType.MANAGER: composite.CompositeKVManager if is_composite else PrfaasKVManager,
        KVClassType.SENDER: composite.CompositeKVSender if is_composite else PrfaasKVSender,
        KVClassType.RECEIVER: composite.CompositeKVReceiver if is_composite else PrfaasKVReceiver,
        KVClassType.BOOTSTRAP_SERVER: PrfaasBootstrapServer,
    }
    return classes[kind]
