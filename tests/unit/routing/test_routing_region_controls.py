from prfaas.routing import LinkSignal
from prfaas.routing.region_controls import RegionControls
from prfaas.routing.region_link import RegionLink

CALM = LinkSignal(utilisation=0.2, backlog_s=0.0)
LOSSY = LinkSignal(utilisation=0.2, backlog_s=0.0, loss=0.2)


def heard(signal: LinkSignal | None) -> RegionLink:
    return RegionLink(signal=signal, num_paths=1, age_s=0.1, is_stale=False, is_current=True)


SILENT = RegionLink(signal=CALM, num_paths=1, age_s=3.0, is_silent=True)
OLD = RegionLink(signal=LOSSY, num_paths=1, age_s=3.0)
UNKNOWN = RegionLink()


def test_each_region_has_a_control_of_its_own() -> None:
    controls = RegionControls()
    controls.on_links({"a": heard(LOSSY), "c": heard(CALM)})
    assert controls.rules["a"].closed
    assert not controls.rules["c"].closed
    assert controls.rules["c"].threshold_factor == 1.0


def test_silence_closes_a_link_unless_it_was_us_who_did_not_listen() -> None:
    controls = RegionControls()
    controls.on_links({"a": heard(CALM)})
    controls.on_links({"a": SILENT}, is_late=True)
    assert not controls.rules["a"].closed
    controls.on_links({"a": SILENT})
    assert controls.rules["a"].closed


def test_what_is_old_changes_nothing_and_what_is_unknown_is_open() -> None:
    controls = RegionControls()
    controls.on_links({"a": heard(CALM), "c": UNKNOWN})
    before = controls.rules["a"]
    controls.on_links({"a": OLD})
    assert controls.rules["a"] == before
    assert not controls.rules["c"].closed
    assert controls.rules["c"].threshold_factor == 1.0


def test_a_region_that_was_away_after_an_outage_starts_slowly() -> None:
    controls = RegionControls()
    controls.on_links({"a": SILENT})
    controls.on_links({})  # its leases have ended
    assert controls.rules["a"].closed
    controls.on_links({"a": UNKNOWN})
    factors = [controls.rules["a"].threshold_factor]
    while factors[-1] > 1:
        controls.on_links({"a": UNKNOWN})
        factors.append(controls.rules["a"].threshold_factor)
    assert factors[0] > 7
    assert factors == sorted(factors, reverse=True)
    assert len(factors) > 20


def test_regions_that_come_and_go_are_forgotten_in_the_end() -> None:
    controls = RegionControls()
    for number in range(1000):
        controls.on_links({"a": heard(CALM), f"r{number}": UNKNOWN})
    assert len(controls.rules) == 64
    assert {"a", "r999"} <= set(controls.rules)
