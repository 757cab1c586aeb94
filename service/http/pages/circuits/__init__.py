"""The page *Circuits*: its example, its chart, and its page."""
