"""Emulated regions: one network namespace per region, and the WAN link between them."""

from prfaas_netem.backend import available as available_backends
from prfaas_netem.client import set_link, show
from prfaas_netem.counters import wan_bytes
from prfaas_netem.link_presets import PRESETS, preset
from prfaas_netem.link_probe import WayProbe, probe_way
from prfaas_netem.link_spec import LinkSpec, LinkText, parse_options
from prfaas_netem.namespace import enter, inside, pids_in, processes_in, run_in
from prfaas_netem.preflight import missing_tools, problems
from prfaas_netem.probes import measure_loss, measure_rate, measure_rtt
from prfaas_netem.regions import create, exists, remove
from prfaas_netem.topology import Topology
from prfaas_netem.topology_file import load_topology, parse_topology
from prfaas_netem.ways import Way

__all__ = [
    "PRESETS",
    "LinkSpec",
    "LinkText",
    "Topology",
    "Way",
    "WayProbe",
    "available_backends",
    "create",
    "enter",
    "exists",
    "inside",
    "load_topology",
    "measure_loss",
    "measure_rate",
    "measure_rtt",
    "missing_tools",
    "parse_options",
    "parse_topology",
    "pids_in",
    "preset",
    "probe_way",
    "problems",
    "processes_in",
    "remove",
    "run_in",
    "set_link",
    "show",
    "wan_bytes",
]
