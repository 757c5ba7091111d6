"""Memory of processes, with shared pages counted once."""

from pathlib import Path

from prfaas_agent.process import ProcessId, session_members


def group_memory_bytes(leader: ProcessId) -> int:
    """Return the proportional memory of all processes in a session; forks share most of theirs."""
    return sum(_memory_bytes(process.pid) for process in session_members(leader))


def _memory_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        # It ended meanwhile, or it is another user's.
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
