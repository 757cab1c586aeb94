"""Power, rate and energy of generative models (language, diffusion) that serve requests."""
