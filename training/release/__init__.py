"""From data to a released artifact: fit, model card, tracking, registry."""
