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


def leader_key(deployment: str) -> str:
    """Return the key that the leading gateway holds under its lease."""
    return deployment_prefix(deployment) + "leader"


def plan_key(deployment: str) -> str:
    """Return the key of the plan in force."""
    return deployment_prefix(deployment) + "plan"


def plan_versions_prefix(deployment: str) -> str:
    """Return the prefix of the plan's versions."""
    return deployment_prefix(deployment) + "plan-versions/"


def plan_version_key(deployment: str, version: int) -> str:
    """Return the key of one version of the plan.

    >>> plan_version_key("default", 7)
    '/prfaas/default/plan-versions/0000000007'
    """
    return f"{plan_versions_prefix(deployment)}{version:010d}"


def wishes_prefix(deployment: str) -> str:
    """Return the prefix of the roles that the plan wants of nodes."""
    return deployment_prefix(deployment) + "wishes/"


def wish_key(deployment: str, node: str) -> str:
    """Return the key of the role that the plan wants of one node."""
    return wishes_prefix(deployment) + node


def policy_key(deployment: str) -> str:
    """Return the key of the deployment's routing policy."""
    return deployment_prefix(deployment) + "policy"
