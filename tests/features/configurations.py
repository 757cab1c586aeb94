"""Small transformers of three families, traced once, and the same modules to run."""

import json
from functools import cache

from forerun.features.readers.huggingface import HuggingFaceReader
from forerun.features.readers.input_sizes import InputSizes
from forerun.features.readers.torch_trace import declare_operators

LAYERS, TOKENS, WIDTH, HEADS, VOCABULARY = 3, 64, 64, 4, 3000
SIZES = {
    "bert": {
        "architectures": ["BertForSequenceClassification"],
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * WIDTH,
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 2,
        "head_dim": WIDTH // HEADS,
        "intermediate_size": 160,
        "tie_word_embeddings": True,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": VOCABULARY,
        "n_embd": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
    },
}
DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop"),
    "attn_pdrop",
)


@cache
def traced(family, layers=LAYERS, tokens=TOKENS):
    """The graph of a family's small network at batch size 1."""
    count = "n_layer" if family == "gpt2" else "num_hidden_layers"
    content = {"model_type": family, **SIZES[family], count: layers}
    return HuggingFaceReader().read(
        json.dumps(content).encode(), InputSizes(sequence_length=tokens)
    )


def module(family, attention, dtype):
    """The network in training mode, without dropout."""
    import torch

    # A torchvision for another build of torch would keep transformers from loading.
    declare_operators()
    import transformers

    options = {k: v for k, v in SIZES[family].items() if k != "architectures"}
    config = transformers.AutoConfig.for_model(
        family, **options, attn_implementation=attention, use_cache=False
    )
    for name in DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    made = getattr(transformers, SIZES[family]["architectures"][0])(config)
    return made.to(getattr(torch, dtype)).train()
