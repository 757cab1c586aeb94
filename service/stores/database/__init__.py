"""Records of stores in PostgreSQL, which several replicas of the service share."""
