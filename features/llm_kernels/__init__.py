"""Features of language-model kernels: sizes as arrays, bounds and dimensionless ratios."""
