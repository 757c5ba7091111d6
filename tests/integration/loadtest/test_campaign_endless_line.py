"""A server whose answer has a line without end: one broken sample, and the others go on."""

import json
import subprocess
import sys

from paced_server import PacedServer, serving

SEND = """
import json, sys
from prfaas_loadtest.campaigns.asking import Api
from prfaas_loadtest.campaigns.campaign import InputForm
from prfaas_loadtest.campaigns.job import Job
from prfaas_loadtest.campaigns.sender import Sender
from prfaas_loadtest.workloads.schedule import Request
import time
job = Job(sys.argv[1], Api.COMPLETIONS, "", InputForm.IDS, "", 1, 99, 30.0, 8, "", 1.0, 0)
requests = [Request(n, 0.3 * n, tokens, 2, 0, "t") for n, tokens in enumerate((17, 5, 18, 6))]
samples = []
Sender(job, requests, samples.append).run(time.monotonic())
print(json.dumps({s.prompt_tokens: [s.outcome, s.error, s.last_s] for s in samples}))
"""


def test_a_line_without_end_is_a_broken_answer() -> None:
    server = PacedServer(endless=frozenset({17}), endless_refusal=frozenset({18}))
    with serving(server):
        done = subprocess.run(
            [sys.executable, "-c", SEND, server.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["17"][0] == "broken"
    assert "a line of more than" in found["17"][1]
    assert found["18"][0] == "refused"
    assert {found["5"][0], found["6"][0]} == {"answered"}
    assert max(last_s for _, _, last_s in found.values()) < 20
