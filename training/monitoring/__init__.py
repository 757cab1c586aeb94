"""Compare answers with later observations: live errors by slice, and changes over time."""
