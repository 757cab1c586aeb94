"""BERT, ALBERT, and decoders, over whole prompts."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Final

from forerun.features.published.modules import with_dense_head
from forerun.features.published.sources import EXAMPLES, HUB, Entry, Inputs, Transformer

_HEADS: Final = (
    "heads of the authors' scripts: sequence classification or none for inference, masked tokens "
    "for training"
)
_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}


def bert() -> Iterator[Entry]:
    """BERT: NVIDIA's large one, transformers' base one; ALBERT."""
    where = f"{EXAMPLES}/LanguageModeling/BERT/bert_configs/large.json"
    yield (
        "bert_large_squad-384-eager",
        Transformer(
            f"{where}; run_squad.py: max_seq_length 384",
            *("BertForQuestionAnswering", "BertConfig", _masked_tokens(384), "eager", _LARGE),
        ),
    )
    # 20 of the 128 positions are masked, and the vocabulary's head runs on these alone.
    yield (
        "bert_large_pretraining-128-eager",
        Transformer(
            f"{where}; run_pretraining.sh: max_predictions_per_seq 20",
            *("BertForPreTraining", "BertConfig", _masked_tokens(128), "eager", _LARGE),
            wrap=partial(with_dense_head, positions=20),
        ),
    )
    albert = {
        **{"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        **{"embedding_size": 128, "vocab_size": 30000},
    }
    for name, architecture, config, fields, lengths, hub in (
        ("bert_base", "BertModel", "BertConfig", {}, (128, 256), "google-bert/bert-base-uncased"),
        (
            *("bert_base_mlm", "BertForMaskedLM", "BertConfig", {}, (256, 512)),
            "google-bert/bert-base-uncased",
        ),
        (
            *("albert_base", "AlbertForSequenceClassification", "AlbertConfig", albert),
            *((128, 256, 512), "albert/albert-base-v2"),
        ),
        (
            *("albert_base_mlm", "AlbertForMaskedLM", "AlbertConfig", albert),
            *((256, 512), "albert/albert-base-v2"),
        ),
    ):
        where = f"{HUB} {hub}; {_HEADS}"
        for length, attention in product(lengths, ("eager", "sdpa")):
            inputs = _masked_tokens(length)
            source = Transformer(where, architecture, config, inputs, attention, fields)
            yield f"{name}-{length}-{attention}", source


def decoders() -> Iterator[Entry]:
    """Decoders, whole forward passes over a prompt."""
    pythia = {
        **{"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
        **{"intermediate_size": 4096, "vocab_size": 50304, "rotary_pct": 0.25},
        "max_position_embeddings": 2048,
    }
    for attention in ("eager", "sdpa"):
        for length in (64, 128, 256):
            yield (
                f"biogpt-{length}-{attention}",
                Transformer(
                    f"{HUB} microsoft/biogpt, the defaults of BioGptConfig",
                    *("BioGptForCausalLM", "BioGptConfig", _masked_tokens(length), attention),
                ),
            )
        for length in (128, 256, 512, 1024, 2048):
            yield (
                f"pythia_410m-{length}-{attention}",
                Transformer(
                    f"{HUB} EleutherAI/pythia-410m-deduped",
                    *("GPTNeoXForCausalLM", "GPTNeoXConfig", _masked_tokens(length), attention),
                    pythia,
                ),
            )


def _masked_tokens(length: int) -> Inputs:
    return {"input_ids": (1, length), "attention_mask": (1, length)}
