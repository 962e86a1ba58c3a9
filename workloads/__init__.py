"""Where steps come from: the user's `Workload`, the frontends that trace it, and the shipped ones with their data."""

from workloads.errors import WorkloadError
from workloads.prepare import prepare
from workloads.trained import trained
from workloads.workload import ArraySpec, PreparedWorkload, Quality, Signature, Workload

__all__ = ["ArraySpec", "PreparedWorkload", "Quality", "Signature", "Workload", "WorkloadError", "prepare", "trained"]
