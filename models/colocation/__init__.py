"""Relative speed of programs that share a host with others.

The relative speed is the time of a program alone over its time next to its neighbours.
"""

from forerun.models.colocation.application_booster import NeighbourBoost
from forerun.models.colocation.booster import ColocationBoost, ProgramMean

__all__ = ["ColocationBoost", "NeighbourBoost", "ProgramMean"]
