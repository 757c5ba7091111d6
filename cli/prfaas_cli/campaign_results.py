"""A run of a campaign read from its folder: campaign, facts, samples, and what they come to."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from prfaas.errors import ConfigError, StateError
from prfaas_cli.campaign_prediction import Prediction, predict
from prfaas_cli.campaign_target import Facts
from prfaas_cli.output import finite
from prfaas_loadtest.campaigns import (
    Campaign,
    Sample,
    Summary,
    parse_campaign,
    read_samples,
    summarise,
)
from prfaas_loadtest.campaigns.run import RunFolder

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Egress:
    """What came over the link into the decoding region, in real time and real bytes.

    `at_s` are seconds since the campaign's begin, `bits_per_s` the rate up to then; `mean` is that
    of the measured window, `share` what that is of the link (None: the link is not known).
    """

    at_s: Floats
    bits_per_s: Floats
    mean_bits_per_s: float
    share: float | None


@dataclass(frozen=True, slots=True)
class Results:
    """All of one run."""

    folder: RunFolder
    campaign: Campaign
    facts: Facts
    samples: tuple[Sample, ...]
    summary: Summary
    egress: Egress | None
    prediction: Prediction | None

    def document(self) -> dict[str, Any]:
        """Return the results as plain JSON values, without the samples."""
        egress = None
        if self.egress is not None:
            egress = {
                "mean_bits_per_s": self.egress.mean_bits_per_s,
                "share": self.egress.share,
            }
        prediction = None if self.prediction is None else asdict(self.prediction)
        return {
            "campaign": self.campaign.name,
            "target": self.facts.to_json(),
            "slo": asdict(self.campaign.slo),
            "measured": asdict(self.summary),
            "egress": egress,
            "prediction": prediction,
        }


def read_results(
    folder: RunFolder, *, beside: Path | None = None, predicted: bool = True
) -> Results:
    """Read a run. Files that its campaign names are looked for in `beside`: traces, which are not
    needed any more, and the case of its plan, which only a prediction needs.

    Raises:
        StateError: it is no run, or nothing was measured.
    """
    try:
        text = folder.campaign.read_text()
        raw = json.loads(folder.facts.read_text())
        began_at_s = raw.pop("began_at_s", None)
        raw.pop("requests", None)
        facts = Facts.from_json(raw)
    except (OSError, ValueError, TypeError, KeyError):
        raise StateError(f"{folder.path}: not the folder of a run of a campaign") from None
    campaign = _campaign(text, folder, beside)
    samples = tuple(read_samples(folder.samples)) if folder.samples.exists() else ()
    summary = summarise(
        samples,
        slo=campaign.slo,
        warmup_share=campaign.warmup_share,
        dilation=facts.dilation,
    )
    return Results(
        folder=folder,
        campaign=campaign,
        facts=facts,
        samples=samples,
        summary=summary,
        egress=_egress(folder, facts, summary, began_at_s),
        prediction=predict(campaign, folder, facts, beside=beside) if predicted else None,
    )


def write_results(file: Path, document: dict[str, Any]) -> None:
    """Write a document of results."""
    file.write_text(json.dumps(finite(document), indent=1, allow_nan=False) + "\n")


def _campaign(text: str, folder: RunFolder, beside: Path | None) -> Campaign:
    from prfaas_cli.trace_file import read_trace
    from prfaas_loadtest.campaigns import campaign_files

    traces = {}
    for named in campaign_files(text, source=str(folder.campaign)):
        file = (beside or folder.path) / named
        # The schedule holds all that was taken of a trace.
        traces[named] = read_trace(file if file.exists() else folder.trace)
    try:
        return parse_campaign(text, source=str(folder.campaign), traces=traces)
    except ConfigError as error:
        raise StateError(str(error)) from None


def _egress(
    folder: RunFolder, facts: Facts, summary: Summary, began_at_s: float | None
) -> Egress | None:
    """Return what crossed the link, where that was written down."""
    try:
        rows = [orjson.loads(line) for line in folder.link.read_bytes().splitlines()]
        times = np.array([row["at_s"] for row in rows])
        crossed = np.array([row["rx_bytes"] for row in rows], dtype=np.float64)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if len(rows) < 3:
        return None
    begin_s = float(times[0]) if began_at_s is None else began_at_s
    at_s = (times - begin_s) / facts.dilation
    # Bytes here stand for `scale` real ones, seconds for 1 / `dilation`.
    bits = (crossed - crossed[0]) * 8 * facts.scale
    rates = np.diff(bits) / np.maximum(np.diff(at_s), 1e-9)
    begin, end = summary.window_s
    mean = float(np.diff(np.interp([begin, end], at_s, bits))[0]) / max(end - begin, 1e-9)
    share = mean / facts.link_bits_per_s if facts.link_bits_per_s else None
    return Egress(at_s[1:], rates, mean, share)
