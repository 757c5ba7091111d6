"""Equations 1 to 8: what a deployment can take, and which of its stages is full first."""

from prfaas.throughput.clusters import Demand, Expectation, PdCluster, PrefillCluster
from prfaas.throughput.split import Split, split_at
from prfaas.throughput.stages import ClusterStage, Stage, Stages, Utilisation, stages

__all__ = [
    "ClusterStage",
    "Demand",
    "Expectation",
    "PdCluster",
    "PrefillCluster",
    "Split",
    "Stage",
    "Stages",
    "Utilisation",
    "split_at",
    "stages",
]
