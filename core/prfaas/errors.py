"""Errors of PrfaaS.

PrfaasError                 anything we raise on purpose; its text is one line a person can act on
├── ConfigError             a config file or option: names file, key, value and what is allowed
├── PreflightError          the machine lacks something that a command needs
├── StateError              a deployment or node is not in the state that a command needs
├── TransferError           a room or peer failed; carries a Reason word
└── ProtocolError           the peer broke the wire protocol; its lane is closed
"""


class PrfaasError(Exception):
    """Base of all deliberate errors; `str()` is one line that says what, where and what to do."""

    exit_code = 1


class ConfigError(PrfaasError):
    """A value in a config file or on the command line is wrong."""

    exit_code = 2


class PreflightError(PrfaasError):
    """The machine lacks something: a right, a binary, a directory, a free port."""

    exit_code = 3


class StateError(PrfaasError):
    """The deployment or node is not in the state that the command needs."""


class TransferError(PrfaasError):
    """A transfer room or a peer failed."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class ProtocolError(PrfaasError):
    """The remote side broke the wire protocol."""
