"""Retraining on users' measurements: a fixed hold-out split, and comparison with the champion."""
