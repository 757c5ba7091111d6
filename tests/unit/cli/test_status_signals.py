from prfaas.routing import LinkSignal
from prfaas.routing.region_link import RegionLink
from prfaas_cli.status import signals_line


def test_a_links_signals_fit_one_line() -> None:
    signal = LinkSignal(utilisation=0.42, backlog_s=0.25, loss=0.012)
    link = RegionLink(
        signal=signal, num_paths=1, available_bytes_per_s=1.25e9, age_s=0.2, is_stale=False
    )
    line = signals_line(link.to_json())
    assert line == (
        "up, 42% used of 10gbit that transfers got of late, backlog 250ms, 1.2% sent again"
    )


def test_what_follows_from_a_links_state_is_said_where_it_is_unusual() -> None:
    link = RegionLink(signal=LinkSignal(0.9, 3.0), is_stale=False).to_json()
    usual = {"closed": False, "threshold_factor": 1.0, "threshold_tokens": 100}
    assert signals_line(link | {"rule": usual}) == signals_line(link)
    full = signals_line(link | {"rule": usual | {"threshold_factor": 2, "threshold_tokens": 200}})
    assert full.endswith("; full: offloads above 200 tokens only")
    closed = usual | {"closed": True, "threshold_factor": 8.0, "threshold_tokens": None}
    assert "CLOSED" in signals_line(link | {"rule": closed})
    assert "CLOSED" in signals_line(RegionLink().to_json() | {"rule": closed})


def test_what_is_old_down_or_unknown_says_so() -> None:
    assert signals_line(RegionLink().to_json()) == "none yet"
    down = LinkSignal(utilisation=0.0, backlog_s=0.0, up=False)
    old = signals_line(RegionLink(signal=down, age_s=3.0, is_stale=True).to_json())
    assert old.startswith("DOWN 3.0 s ago, 0% used of an unknown rate that transfers")
