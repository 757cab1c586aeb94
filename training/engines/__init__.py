"""Run the independent jobs of an evaluation or a training, locally or on a Ray cluster."""
