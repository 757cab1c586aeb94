"""What decides power: the load that a run puts on a GPU."""
