"""Features of single kernels, the inputs of the kernel time model (`models/kernels`)."""
