"""Tests of Slurm's plug-in."""
