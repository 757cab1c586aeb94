"""What a network asks of a device's memory, request by request, in inference and in training."""
