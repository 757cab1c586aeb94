"""Datasets on language models: serving runs, timed operators, request traces."""
