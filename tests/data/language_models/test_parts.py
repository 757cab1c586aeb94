"""Weights and cached values of each part of a layer, counted by hand."""

import pytest

from forerun.data.language_models.attention import Attention, CompressedAttention, LatentAttention
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.model import LanguageModel, Layer, VisionTower
from forerun.data.language_models.recurrent import GatedDeltaNet, KimiDeltaAttention, StateSpace
from forerun.data.language_models.weights import LayerFormats, WeightFormats

HIDDEN = 100


@pytest.mark.parametrize(
    ("mixer", "weights", "kept"),
    [
        # queries 4 x 8, keys 2 x 8, values 2 x 6, outputs 4 x 6
        (Attention(4, 2, 8, 6), 100 * (32 + 16 + 12 + 24), 50 * 2 * 14),
        (Attention(4, 2, 8, 6, window=20), 100 * (32 + 16 + 12 + 24), 20 * 2 * 14),
        (Attention(4, 2, 8, 6, gated=True), 100 * (64 + 16 + 12 + 24), 50 * 2 * 14),
        (Attention(4, 2, 8, 8, values_are_keys=True), 100 * (32 + 16 + 32), 50 * 2 * 16),
        (
            Attention(4, 2, 8, 6, index_heads=3, index_dim=5),
            100 * (32 + 16 + 12 + 24 + 3 * 5 + 5),
            50 * (2 * 14 + 5),
        ),
        # queries by a vector of 30, keys and values by one of 20 and rotary keys of 2
        (
            LatentAttention(4, 30, 20, 6, 2, 5),
            100 * 30 + 30 * 4 * 8 + 100 * 22 + 20 * 4 * 11 + 4 * 5 * 100,
            50 * 22,
        ),
        (
            LatentAttention(4, None, 20, 6, 2, 5, gated=True),
            100 * 4 * 8 + 100 * 22 + 20 * 4 * 11 + 2 * 4 * 5 * 100,
            50 * 22,
        ),
        (
            LatentAttention(4, 30, 20, 6, 2, 5, index_heads=3, index_dim=7),
            100 * 30 + 30 * 4 * 8 + 100 * 22 + 20 * 4 * 11 + 2000 + 30 * 21 + 100 * (7 + 3),
            50 * (22 + 7),
        ),
        (
            LatentAttention(4, 30, 20, 6, 2, 5, index_heads=3, index_dim=7, own_indexer=False),
            100 * 30 + 30 * 4 * 8 + 100 * 22 + 20 * 4 * 11 + 2000,
            50 * 22,
        ),
        # queries 4 x 8 by a vector of 30, one key of 8, outputs in 2 groups of 10
        (
            CompressedAttention(4, 8, 30, 2, 10, window=20),
            30 * (100 + 32) + 100 * 8 + 10 * 32 + 2 * 10 * 100,
            20 * 8,
        ),
        (
            CompressedAttention(4, 8, 30, 2, 10, window=20, block_tokens=10),
            30 * (100 + 32) + 100 * 8 + 10 * 32 + 2 * 10 * 100 + 2 * 100 * 8,
            20 * 8 + 5 * 8,
        ),
        (
            CompressedAttention(4, 8, 30, 2, 10, 20, block_tokens=10, index_heads=3, index_dim=7),
            30 * 132 + 800 + 320 + 2000 + 2 * 1600 + 30 * 21 + 100 * (3 + 28),
            20 * 8 + 5 * (8 + 7),
        ),
        # keys 2 x 8, values 4 x 6, convolution over 4 tokens
        (
            GatedDeltaNet(2, 4, 8, 6, 4),
            100 * (32 + 48 + 8) + 56 * 4 + 24 * 100,
            4 * 8 * 6 + 56 * 3,
        ),
        # 3 heads of 8: four products, decay and gate of the rank of a head
        (
            KimiDeltaAttention(3, 8, 4),
            4 * 100 * 24 + 300 + 2 * 8 * 124 + 3 * 24 * 4,
            24 * 8 + 3 * 24 * 3,
        ),
        (
            KimiDeltaAttention(3, 8, 4, full_gate=True),
            5 * 100 * 24 + 300 + 8 * 124 + 3 * 24 * 4,
            24 * 8 + 3 * 24 * 3,
        ),
        # 3 heads of 8, 2 groups of 16 values of state
        (
            StateSpace(3, 8, 2, 16, 4),
            100 * (48 + 64 + 3) + (24 + 64) * 4 + 2400,
            24 * 16 + 88 * 3,
        ),
    ],
)
def test_a_mixer(mixer, weights, kept):
    assert mixer.parameters(HIDDEN) == weights
    assert mixer.cached(50) == kept


def test_the_state_of_recurrent_layers_does_not_grow():
    for mixer in (
        GatedDeltaNet(2, 4, 8, 6, 4),
        KimiDeltaAttention(3, 8, 4),
        StateSpace(3, 8, 2, 16, 4),
    ):
        assert mixer.cached(10**6) == mixer.cached(1)


def test_a_dense_network():
    assert Dense(40).parameters(HIDDEN) == Dense(40).active(HIDDEN) == 3 * 100 * 40
    assert Dense(40, gated=False).parameters(HIDDEN) == 2 * 100 * 40


def test_a_token_uses_the_shared_and_its_routed_experts():
    mixture = Experts(experts=8, per_token=2, width=10, shared_width=30)
    assert mixture.parameters(HIDDEN) == 800 + 3 * 100 * 30 + 8 * 3000
    assert mixture.active(HIDDEN) == 800 + 3 * 100 * 30 + 2 * 3000


def test_experts_may_work_on_shorter_vectors():
    mixture = Experts(
        experts=8, per_token=2, width=10, gated=False, shared_width=30, latent_size=25
    )
    assert mixture.parameters(HIDDEN) == 800 + 2 * 100 * 25 + 2 * 100 * 30 + 8 * 2 * 25 * 10


def test_an_encoder_of_images():
    tower = VisionTower(2, 10, 12, 40, 14, merged=2, output_size=100, merges=3)
    assert tower.pixels_per_token() == 28
    assert tower.parameters() == 2 * (4 * 10 * 12 + 2 * 10 * 40) + 3 * 40 * 140


def model(*, tied, formats=None):
    mixture = Experts(experts=8, per_token=2, width=10, shared_width=30)
    layers = (
        Layer(Attention(4, 2, 8, 6), (Dense(40),)),
        Layer(StateSpace(3, 8, 2, 16, 4), (mixture,)),
        Layer(None, (Dense(20),)),
    )
    return LanguageModel("toy", HIDDEN, 1000, layers, tied, formats=formats or WeightFormats())


def test_a_model_is_its_layers_and_its_tables():
    layers = 8400 + 12000 + 11500 + 352 + 2400 + 33800 + 6000
    assert model(tied=True).parameters() == layers + 100_000
    assert model(tied=False).parameters() == layers + 200_000
    unused = 6 * 3000
    assert model(tied=True).active_parameters() == layers - unused + 100_000
    assert model(tied=False).active_parameters() == model(tied=True).active_parameters()


def test_keys_and_states_have_separate_formats():
    made = model(tied=True, formats=WeightFormats(cache="fp8", state="fp32"))
    assert made.cache_bytes(50) == 50 * 28 + 4 * (24 * 16 + 88 * 3)


def test_bytes_of_weights_follow_the_formats_of_their_parts():
    formats = LayerFormats(mixer="fp8", dense="int8", shared="fp32", experts="nvfp4")
    made = model(tied=False, formats=WeightFormats(head="fp8", layers=(formats,) * 3))
    tables, mixers = 200_000 + 100_000, 8400 + 14252
    assert made.weight_bytes() == pytest.approx(
        tables + mixers + 18_000 + 800 * 2 + 9000 * 4 + 24_000 * 0.5625
    )
