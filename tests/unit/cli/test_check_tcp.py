"""What `node check` says of the machine's TCP."""

from pathlib import Path

import pytest

from prfaas_cli.node_check import tcp_finding


@pytest.mark.parametrize(
    ("content", "said"),
    [("0\n", "good"), ("1\n", "tcp_slow_start_after_idle=0"), (None, "not known")],
)
def test_a_machine_that_shrinks_idle_windows_is_told_how_to_stop(
    tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "tcp_slow_start_after_idle"
    if content is not None:
        file.write_text(content)
    finding = tcp_finding(file)
    assert finding.ok
    assert said in finding.detail
