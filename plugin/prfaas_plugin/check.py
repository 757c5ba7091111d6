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
from prfaas_plugin.version import check_sglang_version


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


CHECKS: tuple[Callable[[], str], ...] = (check_version, check_choice, check_classes)


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
