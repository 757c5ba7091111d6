import pytest

from prfaas.errors import ConfigError
from prfaas_netem.emulator import Emulator
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.schedule import Schedule, Step
from prfaas_netem.topology import Topology
from prfaas_netem.ways import Way

BASE = LinkSpec()
SLOW, LOSSY = LinkSpec(delay_s=0.05), LinkSpec(loss=0.1)
ONCE = Schedule(steps=(Step(10, SLOW), Step(20, LOSSY)))
EVER = Schedule(steps=(Step(10, SLOW), Step(20, LOSSY)), period_s=30)


@pytest.mark.parametrize(
    ("time_s", "spec", "next_s"),
    [(0, BASE, 10), (9.9, BASE, 10), (10, SLOW, 20), (20, LOSSY, None), (500, LOSSY, None)],
)
def test_steps_follow_each_other(time_s, spec, next_s):
    assert ONCE.spec_at(time_s, BASE) is spec
    assert ONCE.next_change_s(time_s) == next_s


@pytest.mark.parametrize(
    ("time_s", "spec", "next_s"), [(25, LOSSY, 30), (30, BASE, 40), (45, SLOW, 50), (95, BASE, 100)]
)
def test_a_period_begins_anew(time_s, spec, next_s):
    assert EVER.spec_at(time_s, BASE) is spec
    assert EVER.next_change_s(time_s) == next_s


@pytest.mark.parametrize(
    ("steps", "period_s"),
    [
        ((), None),
        ((Step(-1, SLOW),), None),
        ((Step(8e5, SLOW),), None),
        ((Step(2, SLOW), Step(1, LOSSY)), None),
        ((Step(1, SLOW), Step(1, LOSSY)), None),
        ((Step(5, SLOW),), 5.0),
        (tuple(Step(at, SLOW) for at in range(1001)), None),
    ],
)
def test_wrong_schedules_are_refused(steps, period_s):
    with pytest.raises(ConfigError, match=r"schedule: .*allowed: "):
        Schedule(steps=steps, period_s=period_s)


def test_stretched_and_back_from_json():
    slower = EVER.mapped(lambda spec: spec.merged({"loss": 0.5}), stretch=2)
    assert [step.at_s for step in slower.steps] == [20, 40]
    assert slower.period_s == 60
    assert {step.spec.loss for step in slower.steps} == {0.5}
    assert Schedule.from_json(slower.to_json()) == slower
    for wrong in (1, {}, {"steps": 3, "period_s": None}, {"steps": [{}], "period_s": None}):
        with pytest.raises(ConfigError, match="schedule: allowed"):
            Schedule.from_json(wrong)


class Recorder:
    name = "nfqueue"

    def __init__(self):
        self.applied = []

    def apply(self, direction, spec):
        self.applied.append((direction.source, spec))

    def report(self, direction):
        return {"mode": "gso"}


@pytest.fixture
def world():
    now = [100.0]
    recorder = Recorder()
    topology = Topology.plan().with_ways(Way("a", "b", BASE, EVER))
    return now, recorder, Emulator(topology, recorder, clock=lambda: now[0])


def test_an_emulator_follows_the_schedule_of_one_way(world):
    now, recorder, emulator = world
    assert emulator.follow() == 10
    assert recorder.applied == []
    for at_s, wait_s in ((110, 10), (113, 7), (121, 9), (130, 10)):
        now[0] = at_s
        assert emulator.follow() == wait_s
    assert recorder.applied == [("a", SLOW), ("a", LOSSY), ("a", BASE)]
    shown = {way["from"]: way["schedule"] for way in emulator.show()["directions"]}
    assert shown == {"a": {"steps": 2, "period_s": 30, "next_change_in_s": 10}, "b": None}


def test_a_change_by_hand_ends_the_schedule_of_its_way(world):
    now, recorder, emulator = world
    emulator.handle({"op": "set", "link": {"loss": 0.5}, "from": "a", "to": "b"})
    now[0] = 115
    assert emulator.follow() is None
    assert recorder.applied == [("a", LinkSpec(loss=0.5))]
