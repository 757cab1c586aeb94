"""Pages about devices: their spec sheets, and which training rows were measured on them."""
