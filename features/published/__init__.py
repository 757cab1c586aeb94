"""Networks timed in published tables: configurations, modules, graphs."""
