"""The published interface, and what of it a change would break: `python -m tests.openapi`."""
