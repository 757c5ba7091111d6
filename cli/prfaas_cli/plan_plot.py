"""The figures of a plan: KV throughput over length, and the search along its two axes.

matplotlib is imported here and nowhere else, without a display.

Source: PrfaaS Figures 5a and 5b.
"""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from prfaas.errors import ConfigError
from prfaas.planning.curves import kv_throughput_curve, role_curve, threshold_curve
from prfaas_cli.plan_study import Study, gbps, used_of
from prfaas_cli.profile_files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (15.0, 4.4)


def draw(study: Study, path: Path) -> None:
    """Draw the three figures side by side into a file; its suffix says how.

    Raises:
        ConfigError: the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    # The same study gives the same bytes.
    mpl.rcParams["svg.hashsalt"] = "prfaas"
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    throughput, roles, thresholds = figure.subplots(1, 3)
    _draw_kv_throughput(throughput, study)
    _draw_roles(roles, study)
    _draw_thresholds(thresholds, study)
    figure.suptitle(f"case {study.case.name}")
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    try:
        drawn = BytesIO()
        figure.savefig(drawn, format=path.suffix.lower().lstrip("."), metadata=metadata)
        write_whole(path, drawn.getvalue())
    except OSError as error:
        raise ConfigError(f"--plot {path}: {error.strerror or error}") from None


def _draw_kv_throughput(axes: "Axes", study: Study) -> None:
    low, high = study.case.demand.lengths.cells()[0][[0, -1]]
    tokens = np.geomspace(max(low, 128.0), max(high, 1024.0), 200)
    profiles = {cluster.profile.name: cluster.profile for cluster in study.case.site.clusters}
    for name, profile in profiles.items():
        axes.plot(tokens, gbps(1.0) * kv_throughput_curve(profile, tokens.tolist()), label=name)
    axes.set(xscale="log", xlabel="uncached tokens", ylabel="Gbps", title="KV throughput")
    axes.legend()


def _draw_roles(axes: "Axes", study: Study) -> None:
    found = study.plan
    curve = role_curve(used_of(study), study.case.demand, found.threshold_tokens, study.expectation)
    axes.plot(curve.n_p, curve.lambda_max, marker="o")
    axes.axvline(found.n_p, linestyle=":", color="grey")
    axes.set(
        xlabel="N_p",
        ylabel="Lambda_max (req/s)",
        title=f"roles at t = {found.threshold_tokens}",
    )


def _draw_thresholds(axes: "Axes", study: Study) -> None:
    found = study.plan
    roles = (found.n_p, found.n_d)
    case = study.case
    curve = threshold_curve(used_of(study), case.demand, roles, study.expectation, case.constraints)
    axes.plot(curve.thresholds, curve.offload_limit, label="Theta_prfaas / p")
    axes.plot(curve.thresholds, curve.local_limit, label="Theta_pd_p / (1 - p)")
    axes.plot(curve.thresholds, curve.lambda_max, label="Lambda_max", color="black", linewidth=1)
    axes.axvline(found.threshold_tokens, linestyle=":", color="grey")
    axes.set(
        xlabel="threshold t (tokens)",
        ylabel="req/s",
        title=f"threshold at N_p / N_d = {found.n_p} / {found.n_d}",
        xlim=(0, max(3 * found.threshold_tokens, 10_000)),
        ylim=(0, max(3 * found.lambda_max, 0.1)),
    )
    axes.legend()
