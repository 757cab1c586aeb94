"""Records of training sets, and training runs in MLflow."""
