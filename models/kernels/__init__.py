"""Times of single kernels, fitted on networks and operators together, through the sum."""
