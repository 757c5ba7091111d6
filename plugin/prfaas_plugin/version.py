"""Which SGLang releases the plugin supports."""

from importlib.metadata import PackageNotFoundError, version

from prfaas.errors import PrfaasError

#: The hooks and base classes were tested against these releases and no others.
SUPPORTED = ("0.5.23",)


def check_sglang_version() -> str:
    """Return the installed SGLang's version.

    Raises:
        PrfaasError: SGLang is missing or not supported.
    """
    try:
        installed = version("sglang")
    except PackageNotFoundError:
        raise PrfaasError(f"sglang is not installed; install sglang=={SUPPORTED[-1]}") from None
    if installed not in SUPPORTED:
        raise PrfaasError(
            f"sglang {installed} is not supported; install sglang=={' or '.join(SUPPORTED)}"
        )
    return installed
