"""Second floor: predictors with one protocol, `fit`, `adapt` and `predict`."""
