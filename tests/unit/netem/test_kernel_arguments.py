import pytest

from prfaas_netem.kernel_link import netem_arguments
from prfaas_netem.link_presets import PRESETS
from prfaas_netem.link_spec import LinkSpec


def after(arguments, word, count=1):
    place = arguments.index(word) + 1
    return arguments[place : place + count]


def test_whole_microseconds_percent_and_room_for_a_round_trip():
    spec = LinkSpec.parse(rate="1gbit", rtt="20ms", jitter="1ms", loss="2%")
    arguments = netem_arguments(spec)
    assert after(arguments, "delay", 2) == ["10000us", "1000us"]
    assert after(arguments, "loss", 2) == ["random", "2%"]
    assert "distribution" not in arguments
    assert int(after(arguments, "limit")[0]) * 1500 > 0.020 * 1e9 / 8


def test_everything():
    arguments = netem_arguments(
        LinkSpec.parse(
            jitter="1ms",
            jitter_distribution="paretonormal",
            burst_loss="0.5%,25%,80%,0.1%",
            corruption="0.01%",
            duplication="0.05%",
            reordering="3%",
        )
    )
    assert after(arguments, "distribution") == ["paretonormal"]
    assert after(arguments, "loss", 5) == ["gemodel", "0.5%", "25%", "80%", "0.1%"]
    assert after(arguments, "corrupt") == ["0.01%"]
    assert after(arguments, "duplicate") == ["0.05%"]
    assert after(arguments, "reorder") == ["3%"]


def test_correlated_loss_is_a_channel_with_the_same_share():
    arguments = netem_arguments(LinkSpec.parse(loss="10%", loss_correlation="50%"))
    assert after(arguments, "loss", 5) == ["gemodel", "5%", "45%", "100%", "0%"]


@pytest.mark.parametrize("spec", [LinkSpec(delay_s=0), LinkSpec(delay_s=10), *PRESETS.values()])
def test_every_link_has_a_limit_above_nothing(spec):
    assert 1 <= int(after(netem_arguments(spec), "limit")[0]) <= 1_000_000
