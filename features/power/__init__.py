"""The load that a run puts on a GPU, from which its power is predicted."""
