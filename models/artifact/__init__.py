"""Predictors on disk: sealed folders of JSON and text files; loading runs no code.

A predictor inherits `save` and `load` from `StoredPredictor`. `seal` writes a folder's manifest,
`check` verifies it, and `bundled` loads the predictor that comes with the package.
"""
