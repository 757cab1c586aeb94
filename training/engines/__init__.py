"""Where independent jobs of an evaluation or a training run are done."""
