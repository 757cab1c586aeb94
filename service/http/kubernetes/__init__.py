"""A scheduler extender for Kubernetes: nodes filtered and scored for a pod."""
