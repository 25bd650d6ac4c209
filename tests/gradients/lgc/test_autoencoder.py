"""The autoencoder: the shapes of Tables I and II, and its training."""

from __future__ import annotations

import numpy as np
import pytest

from softnic.gradients import Floats
from softnic.gradients.lgc.autoencoder import Autoencoder, code_words, padded

ENCODER_WORDS = 64 * 4 + 128 * (64 * 3 + 1) + 256 * (128 * 3 + 1) + 64 * (256 * 3 + 1) + 4 * (64 + 1)
"""Table I: a kernel of each input channel for each filter, and a bias."""
DECODER_WORDS = 4 * (4 * 3 + 1) + 32 * (4 * 3 + 1) + 64 * (32 * 3 + 1) + 128 * (64 * 3 + 1) + 32 * (128 * 3 + 1)
"""Table II, without the last layer."""


def curves(count: int, seed: int, length: int = 160) -> list[Floats]:
    """Return vectors like sorted selected gradients: both tails of a normal distribution, with small differences."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        values = rng.standard_normal(100 * length)
        values = np.sort(values[np.argsort(-np.abs(values))[:length]])
        found.append((values / np.sqrt(np.mean(values**2))).astype(np.float32))
    return found


def innovations(vectors: list[Floats]) -> list[Floats]:
    return [np.where(np.abs(v) >= np.sort(np.abs(v))[-len(v) // 10], v, np.float32(0)) for v in vectors]


def relative(loss: float, vectors: list[Floats]) -> float:
    return loss / float(np.mean(np.square(vectors)))


def test_the_number_of_weights_is_that_of_the_tables() -> None:
    ring = Autoencoder(innovation=False, seed=1)
    assert len(ring.weights(encoder_only=True)) == 4 * ENCODER_WORDS
    assert len(ring.weights()) == 4 * (ENCODER_WORDS + DECODER_WORDS + 33)
    server = Autoencoder(3, innovation=True, seed=1)
    assert len(server.weights()) == 4 * (ENCODER_WORDS + 3 * (DECODER_WORDS + 34))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 320, 403])
def test_a_code_is_a_quarter_and_decodes_to_the_original_length(length: int) -> None:
    made = Autoencoder(innovation=False, seed=1)
    code = made.encode(np.ones(length, np.float32))
    assert code.dtype == np.float32
    assert code.size == code_words(length) == padded(length) // 4
    assert made.decode(code, length).shape == (length,)


def test_initial_weights_depend_on_the_seed_only() -> None:
    assert Autoencoder(innovation=False, seed=1).weights() == Autoencoder(innovation=False, seed=1).weights()
    assert Autoencoder(innovation=False, seed=1).weights() != Autoencoder(innovation=False, seed=2).weights()


def test_the_aggregate_is_learned() -> None:
    made = Autoencoder(innovation=False, seed=1)
    losses = [made.learn_aggregate(curves(2, step)) for step in range(150)]
    assert relative(float(np.mean(losses[:5])), curves(2, 0)) > 0.9
    unseen = curves(2, 1000)
    mean = np.mean(unseen, axis=0)
    restored = made.decode(np.mean([made.encode(each) for each in unseen], axis=0), mean.size)
    assert np.mean((restored - mean) ** 2) / np.mean(mean**2) < 0.2


def test_decoders_restore_each_nodes_vector_from_one_code() -> None:
    made = Autoencoder(2, innovation=True, seed=1)
    for step in range(150):
        vectors = curves(2, step)
        _, unlike = made.learn_decoupled(vectors, innovations(vectors), step % 2, similarity=0.5)
    unseen = curves(2, 1000)
    code = made.encode(unseen[0])
    for k, innovation in enumerate(innovations(unseen)):
        restored = made.decode(code, unseen[k].size, innovation, decoder=k)
        assert np.mean((restored - unseen[k]) ** 2) < 0.2
    assert unlike < 0.1 * float(np.mean(np.square(code)))


def test_similarity_loss_makes_codes_similar() -> None:
    """Trained with it, the codes of two nodes differ less, against their own size, than without."""
    distances = {}
    for similarity in (0.0, 0.5):
        made = Autoencoder(2, innovation=True, seed=1)
        for step in range(60):
            vectors = curves(2, step)
            made.learn_decoupled(vectors, innovations(vectors), 0, similarity)
        a, b = (made.encode(each) for each in curves(2, 1000))
        distances[similarity] = float(np.mean((a - b) ** 2))
    assert distances[0.5] < distances[0.0]


def test_losses_equal_their_formulas() -> None:
    vectors = curves(2, 0)
    made = Autoencoder(2, innovation=True, seed=1)
    codes = [made.encode(each) for each in vectors]
    given = innovations(vectors)
    errors = [np.mean((made.decode(codes[1], 160, given[k], k) - vectors[k]) ** 2) for k in range(2)]
    reconstruction, unlike = made.learn_decoupled(vectors, given, 1, 0.5)
    assert reconstruction == pytest.approx(np.mean(errors), rel=1e-4)
    assert unlike == pytest.approx(np.mean((codes[0] - codes[1]) ** 2), rel=1e-4)


def test_weights_are_exported_and_imported() -> None:
    here, there = Autoencoder(innovation=False, seed=1), Autoencoder(innovation=False, seed=2)
    vector = curves(1, 0)[0]
    there.load(here.weights(encoder_only=True), encoder_only=True)
    np.testing.assert_array_equal(there.encode(vector), here.encode(vector))
    there.load(here.weights())
    assert there.weights() == here.weights()
    for data in (b"", here.weights()[:-1], here.weights(encoder_only=True), here.weights() + b"\0" * 4):
        with pytest.raises(ValueError, match="not the weights"):
            there.load(data)


def test_training_continues_from_its_state() -> None:
    here = Autoencoder(innovation=False, seed=1)
    for step in range(3):
        here.learn_aggregate(curves(2, step, 64))
    there = Autoencoder(innovation=False, seed=2)
    there.load_state_dict(here.state_dict())
    for step in range(3, 6):
        assert here.learn_aggregate(curves(2, step, 64)) == there.learn_aggregate(curves(2, step, 64))
    assert here.weights() == there.weights()


def test_decoding_requires_an_innovation_exactly_if_configured() -> None:
    code = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="innovation"):
        Autoencoder(innovation=True, seed=1).decode(code, 16)
    with pytest.raises(ValueError, match="innovation"):
        Autoencoder(innovation=False, seed=1).decode(code, 16, np.zeros(16, np.float32))
