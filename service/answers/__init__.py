"""Answers to questions whose device and graph are resolved: prediction, ranking, sweeps."""
