"""Cycles and area of the hardware designs that high-level synthesis makes of a program."""

from forerun.models.hls_designs.booster import DesignBoost

__all__ = ["DesignBoost"]
