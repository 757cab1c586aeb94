"""Published results of other systems on the same data."""
