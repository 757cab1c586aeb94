"""Few-shot adaptation: read users' measurements, adapt predictors, score held-out rows."""
