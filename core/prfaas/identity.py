"""Who a node is, as its certificate says: `prfaas://<deployment>/<region>/<node>`."""

import re
from dataclasses import dataclass

from prfaas.errors import ConfigError

SCHEME = "prfaas://"
_PART = re.compile(r"[a-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True)
class Identity:
    """A node of a deployment. `str()` is the URI.

    >>> str(Identity("demo", "a", "a-prefill-0"))
    'prfaas://demo/a/a-prefill-0'
    """

    deployment: str
    region: str
    node: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.deployment}/{self.region}/{self.node}"

    @classmethod
    def parse(cls, uri: str) -> "Identity":
        """Return the identity of a URI. Raises: ConfigError.

        >>> Identity.parse("prfaas://demo/a/a-prefill-0").node
        'a-prefill-0'
        """
        parts = uri.removeprefix(SCHEME).split("/") if uri.startswith(SCHEME) else []
        if len(parts) != 3 or not all(_PART.fullmatch(part) for part in parts):
            raise ConfigError(f"{uri!r} is not of the form {SCHEME}DEPLOYMENT/REGION/NODE")
        return cls(*parts)

    def speaks_for(self, node_id: str) -> bool:
        """Say whether a node of this identity may call itself `node_id` in HELLO or WELCOME.

        Every process of a node has an id of its own: the node's name, a slash, a rank.

        >>> identity = Identity("demo", "a", "p0")
        >>> identity.speaks_for("p0"), identity.speaks_for("p0/3"), identity.speaks_for("p01/3")
        (True, True, False)
        """
        return node_id.partition("/")[0] == self.node
