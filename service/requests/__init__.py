"""Requests while they are handled, as all that handles them sees them."""
