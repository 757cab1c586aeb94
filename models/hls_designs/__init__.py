"""Cycles and area of hardware designs that high-level synthesis generates from a program."""

from forerun.models.hls_designs.booster import DesignBoost

__all__ = ["DesignBoost"]
