"""Features of single kernels: what the model of kernel times (`models/kernels`) reads."""
