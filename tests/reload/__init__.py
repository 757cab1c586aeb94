"""Promotions and rollbacks under load: `python -m tests.reload`."""
