"""Ground floor: what was measured, on what. Imports nothing of the other floors."""
