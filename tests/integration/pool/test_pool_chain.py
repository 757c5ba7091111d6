"""SGLang tells a storage all pages before those that it fetches, in its own prefix tree."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("sglang_chain.py")


def test_all_pages_before_a_fetch_are_named_and_as_we_name_them() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["found"] == answer["expected"]
