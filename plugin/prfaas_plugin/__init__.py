"""The SGLang plugin: PD disaggregation backend `prfaas`, out of tree, in unpatched SGLang.

SGLang calls `register()` through the entry-point group `sglang.srt.plugins` in every one of its
processes before it parses arguments. Nothing of SGLang is imported at module level here.
"""


def register() -> None:
    """Add the backend `prfaas` to SGLang.

    Raises:
        PrfaasError: this SGLang release is not supported. SGLang logs it and goes on without us, so
            that `--disaggregation-transfer-backend prfaas` is then refused as an unknown choice.
    """
    from prfaas_plugin import cache_events, pool_hooks
    from prfaas_plugin.backend import install
    from prfaas_plugin.version import check_sglang_version

    check_sglang_version()
    install()
    cache_events.install()
    pool_hooks.install()
