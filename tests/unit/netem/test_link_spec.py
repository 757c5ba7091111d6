import json
import math

import pytest

from prfaas.errors import ConfigError
from prfaas.units import (
    format_duration,
    format_rate,
    parse_duration,
    parse_rate,
    parse_ratio,
)
from prfaas_netem.link_spec import LinkSpec


def test_default_is_100_gbit_and_20_ms_round_trip():
    spec = LinkSpec.default()
    assert (spec.rate_bits_per_s, spec.rtt_s, spec.jitter_s, spec.loss) == (100e9, 0.02, 0, 0)


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [("10gbit", 10**10), ("1.5 Mbit", 1_500_000), ("1tbit", 10**12), ("8000bit", 8000)],
)
def test_rates(text, bits_per_s):
    assert parse_rate(text) == bits_per_s


@pytest.mark.parametrize(("text", "seconds"), [("20ms", 0.02), ("500us", 0.0005), ("1.5s", 1.5)])
def test_durations(text, seconds):
    assert parse_duration(text, option="--rtt") == seconds


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.02", 0.02), ("0", 0), ("100%", 1)])
def test_ratios(text, share):
    assert parse_ratio(text) == share


@pytest.mark.parametrize("text", ["", "fast", "10", "-1gbit", "10gb", "1e3bit", "0bit", "2tbit"])
def test_wrong_rate_names_the_option(text):
    with pytest.raises(ConfigError, match=r"^--rate: .*allowed: ") as caught:
        LinkSpec.parse(rate=text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("rtt", "20"),
        ("rtt", "21s"),
        ("delay", "11s"),
        ("delay", "20%"),
        ("loss", "2"),
        ("loss", "101%"),
        ("loss", "2ms"),
        ("jitter", "x"),
    ],
)
def test_wrong_option_names_itself(option, text):
    with pytest.raises(ConfigError, match=rf"^--{option}: .*allowed: "):
        LinkSpec.parse(**{option: text})


def test_rtt_is_two_delays_and_excludes_delay():
    assert LinkSpec.parse(rtt="20ms") == LinkSpec.parse(delay="10ms")
    with pytest.raises(ConfigError, match="--rtt and --delay"):
        LinkSpec.parse(rtt="20ms", delay="10ms")


def test_changed_keeps_the_rest():
    spec = LinkSpec.parse(rate="10gbit", loss="1%")
    assert spec.changed(rtt="40ms") == LinkSpec.parse(rate="10gbit", loss="1%", rtt="40ms")


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_s": math.nan},
        {"delay_s": -0.1},
        {"delay_s": True},
        {"delay_s": "10ms"},
        {"rate_bits_per_s": 0},
        {"loss": 1.1},
        {"jitter_s": 0.011},
        {"mode": "fast"},
        {"colour": 1},
        {"rtt_s": "20ms"},
        {"rtt_s": 0.02, "delay_s": 0.01},
    ],
)
def test_wrong_json_fields_are_refused(fields):
    with pytest.raises(ConfigError, match="link"):
        LinkSpec.from_json(fields)


def test_json_round_trip():
    spec = LinkSpec.parse(rate="1gbit", rtt="30ms", jitter="1ms", loss="0.5%", mode="packet")
    assert LinkSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert LinkSpec.from_json({"rtt_s": 0.04}) == LinkSpec.parse(rtt="40ms")


def test_loss_splits_super_packets_unless_told_otherwise():
    assert not LinkSpec().splits_super_packets
    assert LinkSpec(loss=0.01).splits_super_packets
    assert not LinkSpec(loss=0.01, mode="gso").splits_super_packets
    assert LinkSpec(mode="packet").splits_super_packets


def test_queue_holds_a_round_trip():
    assert LinkSpec.parse(rate="10gbit", rtt="20ms").queue_bytes == 25_000_000
    assert LinkSpec.parse(rate="1mbit").queue_bytes == 512 * 1024


def test_text_for_people():
    assert str(LinkSpec()) == "100gbit, 10ms one way"
    spec = LinkSpec.parse(rate="2.5gbit", delay="2ms", jitter="1ms", loss="2%")
    assert str(spec) == "2.5gbit, 2ms one way ±1ms, 2% loss"
    assert (format_rate(1500), format_rate(2), format_duration(0)) == ("1.5kbit", "2bit", "0ms")
