"""Networks that published tables time: configurations, modules, graphs."""
