"""Questions about workloads of every kind: in files, and as presets."""
