"""Predicts the relative speed of programs that share a host.

Relative speed is a program's time alone over its time next to its neighbours.
"""

from forerun.models.colocation.application_booster import NeighbourBoost
from forerun.models.colocation.booster import ColocationBoost, ProgramMean

__all__ = ["ColocationBoost", "NeighbourBoost", "ProgramMean"]
