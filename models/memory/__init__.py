"""Peak memory of training and inference: an analytic plan, corrected by measured runs."""
