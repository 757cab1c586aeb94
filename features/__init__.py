"""Features and operator graphs derived from workloads and devices."""
