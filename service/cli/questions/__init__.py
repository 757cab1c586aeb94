"""Questions: predict, rank, sweep and co-locate, about model files, presets and requests."""
