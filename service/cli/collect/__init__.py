"""`forerun collect`: measure on this machine."""
