"""Evaluation of predictors under the protocols of datasets."""
