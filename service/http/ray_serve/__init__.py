"""The service on a cluster of Ray."""
