"""Power, rate and energy of generative models (language, diffusion) that serve requests."""

from forerun.models.serving.power import ServingPower

__all__ = ["ServingPower"]
