"""What users registered and uploaded, on disk."""
