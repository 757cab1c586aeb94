"""Gaussian processes: covariances, closed-form posterior, mixtures, regression from few rows.

Formulas are those of Rasmussen and Williams (2006), chapters 2, 4 and 5.
"""
