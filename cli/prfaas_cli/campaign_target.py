"""What a campaign measures: an API by its URL, or a deployment of this machine."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from prfaas.errors import ConfigError, PrfaasError
from prfaas.twin_section import TwinSection
from prfaas.units import parse_rate

if TYPE_CHECKING:
    from prfaas_cli.place import Place
    from prfaas_loadtest.campaigns import Campaign
    from prfaas_netem import Topology


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the target. `dilation` and `scale` are a twin's: how many seconds one real
    second takes, and what bytes are divided by. `link_bits_per_s` is the real link's rate,
    `batch_tokens` of how many a twin's prefill makes a batch (0: one prompt at a time),
    `certificate` the file of the one that the deployment's gateway shows."""

    url: str
    dilation: float = 1.0
    scale: float = 1.0
    link_bits_per_s: float | None = None
    engines: str = ""
    instances: tuple[int, ...] = ()
    threshold_tokens: int | None = None
    batch_tokens: int = 0
    certificate: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Facts":
        """Return what `to_json` gave."""
        return cls(**{**raw, "instances": tuple(raw["instances"])})


def find_target(campaign: "Campaign", place: "Place") -> tuple[Facts, "LinkMeter | None"]:
    """Return what is known of the target, and a meter of its link where there is one.

    Raises:
        StateError: no deployment is there.
        ConfigError: the campaign and the deployment disagree.
    """
    if campaign.target.url:
        return Facts(campaign.target.url.rstrip("/"), campaign.dilation or 1.0), None
    from prfaas_cli.deploy_gateway import api_certificate
    from prfaas_cli.observation import Observed
    from prfaas_cli.process_plan import api_url

    observed = Observed.of(place)
    options = observed.options
    dilation = options.dilation if options.is_twin else 1.0
    if campaign.dilation is not None and campaign.dilation != dilation:
        raise ConfigError(
            f"dilation = {campaign.dilation:g}: allowed: {dilation:g}, that of deployment"
            f" {place.name}, or none"
        )
    with suppress(ConfigError):
        link_bits_per_s: float | None = parse_rate(options.link_rate, option="--link-rate")
    facts = Facts(
        url=api_url(options),
        dilation=dilation,
        scale=options.scale if options.is_twin else 1.0,
        link_bits_per_s=None if options.topology else link_bits_per_s,
        engines=", ".join(options.profiles) if options.is_twin else options.model_path,
        instances=options.instances,
        threshold_tokens=options.threshold_tokens,
        batch_tokens=TwinSection().batch_tokens if options.is_twin else 0,
        certificate=api_certificate(place, options)[0],
    )
    return facts, LinkMeter(observed.topology, options.home)


class LinkMeter:
    """Reads how many bytes came into the decoding region over its WAN, and writes them down."""

    def __init__(self, topology: "Topology", region: str) -> None:
        self._topology = topology
        self._region = region

    def write(self, file: Path) -> None:
        """Add a line with the time and both directions' bytes; nothing, if they cannot be read."""
        from prfaas_netem import wan_bytes

        with suppress(PrfaasError, OSError):
            found = wan_bytes(self._topology, self._region)
            row = {
                "at_s": time.time(),
                "rx_bytes": found["rx_bytes"],
                "tx_bytes": found["tx_bytes"],
            }
            with file.open("ab") as lines:
                lines.write(orjson.dumps(row) + b"\n")


def check_tokenizer(campaign: "Campaign") -> str:
    """Return the directory of the campaign's tokenizer; empty where none is needed.

    Raises:
        ConfigError: there is no such model.
    """
    from prfaas_cli.options import find_model

    return find_model(campaign.target.tokenizer) if campaign.target.tokenizer else ""


__all__ = ["Facts", "LinkMeter", "check_tokenizer", "find_target"]
