"""Errors of the coordination layer.

PrfaasError
└── EtcdError             etcd did not do what we asked
    ├── EtcdUnavailable   no member answered in time; the same call may work later
    └── EtcdRefused       etcd answered and said no: rights, quota, a bad argument
"""

from prfaas.errors import PrfaasError


class EtcdError(PrfaasError):
    """etcd did not do what we asked; the text names the call, the endpoints and the cause."""


class EtcdUnavailable(EtcdError):  # noqa: N818 - a state of the world, named as people say it
    """No member answered in time; the same call may work later."""


class EtcdRefused(EtcdError):  # noqa: N818
    """etcd answered and said no."""
