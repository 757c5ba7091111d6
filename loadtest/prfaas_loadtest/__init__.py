"""Load on a deployment from outside: workloads, campaigns (measured load) and drills (faults)."""
