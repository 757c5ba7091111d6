"""Start engines through the CPU kit's fork server. The agent gets this as a function: it may not
know the kit."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prfaas.config import NodeConfig
from prfaas_agent.engine import Launch


def fork_launch(config: NodeConfig) -> Launch | None:
    """Return the launch through the node's fork server, None when it has none."""
    socket_path = config.engine.fork_server if config.engine else ""
    if not socket_path:
        return None

    def launch(
        arguments: Sequence[str], environment: Mapping[str, str], log: Path, home: Path
    ) -> int:
        from prfaas_cpu.forkserver import spawn

        return spawn(
            socket_path,
            argv=list(arguments),
            env=dict(environment),
            netns=own_namespace(),
            stdout_path=log,
            cwd=home,
        )

    return launch


def own_namespace() -> str | None:
    """Return the name of the network namespace that we are in, None when it has no name."""
    from prfaas_netem.namespace import names, path_of

    own = Path("/proc/self/ns/net").stat()
    for name in names():
        found = path_of(name).stat()
        if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
            return name
    return None
