"""The page *Compare*: its form, its map, and its page."""
