"""Estimates divided among their parts: operators of a network, loops of a hardware design."""
