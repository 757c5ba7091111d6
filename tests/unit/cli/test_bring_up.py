import errno
import os
from pathlib import Path

import pytest
from test_deploy_plan import OPTIONS, plan

from prfaas.errors import StateError
from prfaas_agent.process import identify
from prfaas_agent.state_file import write_json
from prfaas_cli.bring_up import BringUp, _failures, _milestones
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


def test_a_full_disk_is_said_with_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place = Place(tmp_path, "dev")
    place.directory.mkdir()
    monkeypatch.setattr(Place, "write_deployment", full)
    with pytest.raises(StateError, match=f"cannot write {place.directory}: No space left"):
        BringUp(place, Output(as_json=False)).write_files(plan(), OPTIONS, fresh=True)


def test_only_a_log_that_exists_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path, "dev")
    place.logs.mkdir(parents=True)
    bring_up = BringUp(place, Output(as_json=False))
    observed = Observed(place, OPTIONS, ())
    waited = _milestones(observed)
    assert "; see" not in bring_up._too_slow(observed, waited, 1.0)
    place.log(NODE).touch()
    assert bring_up._too_slow(observed, waited, 1.0).endswith(f"; see {place.log(NODE)}")
