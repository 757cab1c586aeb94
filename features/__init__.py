"""First floor: numbers and graphs made from workloads and devices."""
