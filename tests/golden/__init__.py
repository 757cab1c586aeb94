"""Golden answers: what the bundled predictors and small refits answer, stored and compared."""
