"""Requests for device memory that a network makes in inference and in training."""
