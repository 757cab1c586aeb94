"""Tables of measurements that users bring: their columns, their checks, and their bundles."""
