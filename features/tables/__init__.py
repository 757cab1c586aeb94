"""Tables of dataset bundles as queries."""
