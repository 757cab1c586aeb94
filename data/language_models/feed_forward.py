"""Feed-forward networks of a language model's layer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense feed-forward network.

    Attributes:
        width: intermediate width.
        gated: whether a third matrix gates the intermediate values, as in SwiGLU.
    """

    width: int
    gated: bool = True

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        return (3 if self.gated else 2) * hidden_size * self.width

    def active(self, hidden_size: int) -> int:
        """Number of weights that one token uses."""
        return self.parameters(hidden_size)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: each token passes a few routed experts and all shared ones.

    Attributes:
        experts: number of routed experts.
        per_token: routed experts per token.
        width: intermediate width of a routed expert.
        gated: whether a third matrix gates the intermediate values.
        shared_width: intermediate width of all shared experts together; 0 for none.
        latent_size: width that tokens are projected to before routed experts; None for none.
    """

    experts: int
    per_token: int
    width: int
    gated: bool = True
    shared_width: int = 0
    latent_size: int | None = None

    def expert(self, hidden_size: int) -> int:
        """Number of weights of one routed expert."""
        return (3 if self.gated else 2) * (self.latent_size or hidden_size) * self.width

    def shared(self, hidden_size: int) -> int:
        """Number of weights of the shared experts."""
        return (3 if self.gated else 2) * hidden_size * self.shared_width

    def router(self, hidden_size: int) -> int:
        """Number of weights of the router and of the projections around the routed experts."""
        return hidden_size * (self.experts + 2 * (self.latent_size or 0))

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        return self._with(self.experts, hidden_size)

    def active(self, hidden_size: int) -> int:
        """Number of weights that one token uses."""
        return self._with(self.per_token, hidden_size)

    def _with(self, experts: int, hidden_size: int) -> int:
        around = self.router(hidden_size) + self.shared(hidden_size)
        return around + experts * self.expert(hidden_size)
