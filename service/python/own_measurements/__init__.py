"""Measure on this machine, adapt the predictor to own measurements, or evaluate it on them."""
