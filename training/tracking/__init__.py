"""What a training run was made of, and its record in MLflow."""
