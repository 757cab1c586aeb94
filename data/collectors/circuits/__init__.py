"""Designs of circuits through synthesis, placement and routing, with the delay of every net."""
