"""What a command says for a person: text of others cannot steer the terminal."""

import pytest

from prfaas_cli.output import Output


def test_control_characters_of_others_are_shown_not_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = Output(as_json=False)
    output.result({}, lambda: ["failed: 3 x \x1b[2Jboom\x9b1m", "a\tb\nc é ✓"])
    output.note("why: \x1b]0;title\x07 \r gone")
    said = capsys.readouterr()
    assert said.out == "failed: 3 x \\x1b[2Jboom\\x9b1m\na\tb\nc é ✓\n"
    assert said.err == "why: \\x1b]0;title\\x07 \\r gone\n"
