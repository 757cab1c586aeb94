"""Third floor: fit, judge, track and promote predictors."""
