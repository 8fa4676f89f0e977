"""A cluster in software: scheduler policies, training behaviours, faults with known truth."""

from __future__ import annotations

from marey.sim.config import FaultPlan, PartitionPlan, Placement, Policy, SimConfig
from marey.sim.scheduling.requests import Request
from marey.sim.simulation import Block, Simulation

__all__ = [
    "Block",
    "FaultPlan",
    "PartitionPlan",
    "Placement",
    "Policy",
    "Request",
    "SimConfig",
    "Simulation",
]
