import os
from pathlib import Path

import pytest
from test_deploy_plan import OPTIONS

from prfaas.errors import StateError
from prfaas_agent.process import identify
from prfaas_agent.state_file import write_json
from prfaas_cli.bring_up import BringUp, _failures
from prfaas_cli.observation import Observed
from prfaas_cli.output import Output
from prfaas_cli.place import Place

NODE = "west-prefill-0"


def write(place: Place, *, restarts: int, starts: int, phase: str) -> None:
    own = identify(os.getpid())
    assert own is not None
    entry = {"pid": own.pid, "start_ticks": own.start_ticks}
    process = {**entry, "restarts": restarts, "last_exit": "exit code 3"}
    write_json(place.supervisor_file, {**entry, "processes": {"link": process}})
    state = {"phase": phase, "engine_starts": starts}
    write_json(place.directory / f"{NODE}.agent.json", state)


def test_only_failures_since_the_wait_began_count(tmp_path: Path) -> None:
    place = Place(tmp_path, "dev")
    place.logs.mkdir(parents=True)
    observed = Observed(place, OPTIONS, ())
    bring_up = BringUp(place, Output(as_json=False))
    write(place, restarts=9, starts=9, phase="serving")
    before = _failures(observed)
    bring_up._check_failures(observed, before)
    write(place, restarts=9, starts=13, phase="serving")
    bring_up._check_failures(observed, before)
    write(place, restarts=9, starts=12, phase="starting")
    with pytest.raises(StateError, match=f"the engine of {NODE} keeps ending"):
        bring_up._check_failures(observed, before)
    write(place, restarts=12, starts=9, phase="starting")
    with pytest.raises(StateError, match="link keeps ending: exit code 3"):
        bring_up._check_failures(observed, before)
