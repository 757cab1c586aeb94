"""Figures that the operating system and the devices report."""
