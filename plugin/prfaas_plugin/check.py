"""Proof that the plugin took: `python -m prfaas_plugin.check` prints one JSON document.

SGLang swallows what a plugin raises, so this does what an engine does at start and looks at the
result. Exit status 0 if all is well, 1 if not.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from prfaas.errors import PrfaasError
from prfaas_plugin import register
from prfaas_plugin.backend import NAME
from prfaas_plugin.version import SUPPORTED, check_sglang_version


def check_version() -> str:
    """Return the version found. Raises: PrfaasError."""
    return f"sglang {check_sglang_version()}"


def check_choice() -> str:
    """Prove that the backend is a choice of the command line. Raises: PrfaasError."""
    from sglang.srt.arg_groups.choices import DISAGG_TRANSFER_BACKEND_CHOICES

    if NAME not in DISAGG_TRANSFER_BACKEND_CHOICES:
        raise PrfaasError(f"{NAME} is not a choice of --disaggregation-transfer-backend")
    return f"--disaggregation-transfer-backend {NAME} is accepted"


def check_classes() -> str:
    """Prove that SGLang gets our classes for our backend. Raises: PrfaasError."""
    from sglang.srt.disaggregation import utils

    manager: Any = utils.get_kv_class(utils.TransferBackend(NAME), utils.KVClassType.MANAGER)
    if manager.__name__ != "PrfaasKVManager":
        raise PrfaasError(f"SGLang would use {manager.__name__} for backend {NAME}")
    return "SGLang resolves the backend to our classes"


def check_hooks() -> str:
    """Prove that every hook of ours found its target. Raises: PrfaasError."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    from prfaas_plugin.layerwise import hooks

    hooks.install()
    HookRegistry.apply_hooks()
    ours = [
        target
        for target, found in HookRegistry._hooks.items()  # noqa: SLF001 - there is no other way
        if any(hook.__module__.startswith("prfaas_") for _, hook, _ in found)
    ]
    missing = sorted(set(ours) - HookRegistry._patched)  # noqa: SLF001
    if missing:
        raise PrfaasError(
            f"{', '.join(missing)} cannot be hooked: another package changed SGLang, or it is not"
            f" the release it says; install sglang=={SUPPORTED[-1]} afresh"
        )
    return f"all {len(ours)} hooks found their targets"


def check_events() -> str:
    """Prove that cache events can be published. Raises: PrfaasError."""
    from sglang.srt.disaggregation.kv_events import EventPublisherFactory

    from prfaas_plugin.cache_events import PUBLISHER

    if PUBLISHER not in EventPublisherFactory._registry:  # noqa: SLF001
        raise PrfaasError(f"SGLang does not know the event publisher {PUBLISHER}")
    return f"SGLang knows the event publisher {PUBLISHER}"


def check_role_switch() -> str:
    """Prove that SGLang finds our manager able to change its role. Raises: PrfaasError."""
    from sglang.srt.disaggregation import role_switch

    from prfaas_plugin.manager import PrfaasKVManager

    if not PrfaasKVManager.supports_role_switch or not callable(
        getattr(role_switch, "handle_pd_role_switch", None)
    ):
        raise PrfaasError("SGLang's role switch is not where it was; nodes cannot change roles")
    return "engines can change their role"


CHECKS: tuple[Callable[[], str], ...] = (
    check_version,
    check_choice,
    check_classes,
    check_hooks,
    check_events,
    check_role_switch,
)


def run_checks() -> list[dict[str, Any]]:
    """Run all checks and return one record each: name, ok, detail."""
    results = []
    for check in CHECKS:
        try:
            results.append({"name": check.__name__, "ok": True, "detail": check()})
        # Outermost frame of one check: whatever it met is its result.
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            results.append({"name": check.__name__, "ok": False, "detail": detail})
    return results


def main() -> int:
    """Load plugins as SGLang does, check, print."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    try:
        register()
        HookRegistry.apply_hooks()
        results = run_checks()
    except (PrfaasError, ImportError) as error:
        results = [{"name": "register", "ok": False, "detail": str(error)}]
    sys.stdout.write(json.dumps(results) + "\n")
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
