"""Split-conformal prediction intervals by group."""
