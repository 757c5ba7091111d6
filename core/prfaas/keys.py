"""Names of the keys in etcd, one definition for writers and readers."""


def deployment_prefix(deployment: str) -> str:
    """Return the prefix below which everything of one deployment lives.

    >>> deployment_prefix("default")
    '/prfaas/default/'
    """
    return f"/prfaas/{deployment}/"


def nodes_prefix(deployment: str) -> str:
    """Return the prefix of all node records of a deployment."""
    return deployment_prefix(deployment) + "nodes/"


def node_key(deployment: str, node: str) -> str:
    """Return the key of one node's record.

    >>> node_key("default", "a-prefill-0")
    '/prfaas/default/nodes/a-prefill-0'
    """
    return nodes_prefix(deployment) + node


def policy_key(deployment: str) -> str:
    """Return the key of the deployment's routing policy."""
    return deployment_prefix(deployment) + "policy"
