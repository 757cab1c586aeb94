"""Protocols of language models: kernels, serving runs and traces."""
