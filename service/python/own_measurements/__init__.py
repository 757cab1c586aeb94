"""Measure on this machine, adapt the predictor to own measurements, or judge it by them."""
