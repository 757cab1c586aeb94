"""Power, rate and energy of generative models that serve requests."""
