"""Names of activations that configurations of language models give.

An activation changes no size and next to no cost, so that one of another name does not prevent an
answer. A name that is not known may be a misspelt one, and is said.
"""

from difflib import get_close_matches
from typing import Final

from forerun.features.readers.language_model.fields import Fields, short

FIELDS: Final = ("hidden_act", "hidden_activation", "activation_function", "dense_act_fn")
KNOWN: Final = frozenset({
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "hardswish"),
    *("gelu_python_tanh", "gelu_pytorch_tanh", "laplace", "leaky_relu", "linear", "mish", "prelu"),
    *("quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh"),
    *("xielu", "swigluoai", "situ"),
    *("gated-gelu", "geglu", "gelu_tanh", "reglu", "relu_squared", "squared_relu", "swiglu"),
})  # fmt: skip
"""Those of Hugging Face Transformers (`ACT2FN`), and of code that comes with published models."""


def unknown_activations(fields: Fields) -> list[str]:
    """Fields whose value is the name of no activation, each with a known one that is like it."""
    found = []
    for name in FIELDS:
        value = fields.raw(name)
        if isinstance(value, str) and value.lower() not in KNOWN:
            close = get_close_matches(value.lower(), sorted(KNOWN), 1)
            found.append(
                f"{name} {short(value)}" + (f" (did you mean {close[0]}?)" if close else "")
            )
    return found
