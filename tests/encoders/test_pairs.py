"""Pair scoring: one pass over an image whatever the number of suites, each suite kept by itself, nothing twice."""

from pathlib import Path

import numpy as np
import pytest
from encoder_doubles import MeanColour, PairProducts, write_images
from PIL import Image
from upath import UPath

from plumbline.encoders.embedding import embed_images
from plumbline.encoders.pairs import read_scored, score_suites
from plumbline.errors import EncodingError, StorageError
from plumbline.storage import ShardCache

N, SHARD, BATCH = 23, 8, 3
PASSES = 3 + 3 + 3
SUITES = {"first": ["a", "a banana", "thief"], "second": ["a banana", "saint"]}
UNION = ["a", "a banana", "thief", "saint"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"), N)


@pytest.fixture
def cache(tmp_path):
    return ShardCache(UPath(tmp_path / "cache"))


def score(encoder, images, cache, suites=SUITES, **options):
    paths, ids = images
    return score_suites(
        encoder, paths, ids, suites, cache, **{"shard_rows": SHARD, "batch_rows": BATCH, **options}
    )


def shard_file(cache, shard):
    key, sha256 = shard
    return Path(cache.root / key[:2] / f"{sha256}.safetensors")


def bits(scored):
    return {suite: result.array.tobytes() for suite, result in scored.items()}


def test_logits_equal_the_models_own_of_each_image_and_text(images, cache):
    scored = score(PairProducts(), images, cache)
    colours = [np.asarray(Image.open(p), dtype=np.float64).mean(axis=(0, 1)) for p in images[0]]
    for suite, texts in SUITES.items():
        counts = np.array([[len(t), t.count("a") + 1, 1] for t in texts])
        assert scored[suite].array.dtype == np.float32
        np.testing.assert_allclose(scored[suite].array, colours @ counts.T, rtol=1e-5)


def test_suites_that_are_missing_together_take_one_pass_over_distinct_texts(images, cache):
    encoder = PairProducts()
    scored = score(encoder, images, cache)
    assert encoder.batches == [3, 3, 2, 3, 3, 2, 3, 3, 1]
    assert all(texts == UNION for texts in encoder.texts)
    assert scored.counters() == {
        "images": N, "forward_passes": PASSES, "computed_shards": 6, "cached_shards": 0, "repaired_shards": 0,
    }  # fmt: skip
    assert [s.forward_passes for s in scored.values()] == [PASSES, PASSES]


def test_a_second_run_does_no_forward_pass_and_gives_the_same_bits(images, cache):
    first, encoder = score(PairProducts(), images, cache), PairProducts()
    again = score(encoder, images, cache)
    assert again.forward_passes == 0 and encoder.prepared == 0
    assert bits(first) == bits(again)
    assert {k: v.shards for k, v in first.items()} == {k: v.shards for k, v in again.items()}


def test_a_new_suite_leaves_the_others_alone(images, cache):
    score(PairProducts(), images, cache, {"first": SUITES["first"]})
    encoder = PairProducts()
    both = score(encoder, images, cache)
    assert (both["first"].computed_shards, both["second"].computed_shards) == (0, 3)
    assert (both["first"].forward_passes, both["second"].forward_passes, both.forward_passes) == (
        0,
        PASSES,
        PASSES,
    )
    assert all(texts == SUITES["second"] for texts in encoder.texts)


def test_the_cache_goes_by_texts_images_and_weights_not_by_the_suites_id(images, cache):
    score(PairProducts(), images, cache)
    renamed = score(PairProducts(), images, cache, {"other": SUITES["second"]})
    assert renamed["other"].computed_shards == 0
    reordered = score(PairProducts(), images, cache, {"second": SUITES["second"][::-1]})
    assert reordered["second"].computed_shards == 3
    assert score(PairProducts("v"), images, cache)["first"].computed_shards == 3
    paths, ids = images
    assert score(PairProducts(), (paths[::-1], ids[::-1]), cache)["first"].computed_shards == 3
    assert score(PairProducts(), images, cache, batch_rows=4)["first"].computed_shards == 3


def test_pairs_and_embeddings_of_one_identity_do_not_meet(images, cache):
    paths, ids = images
    embed_images(MeanColour(), paths, ids, cache, shard_rows=SHARD, batch_rows=BATCH)
    assert score(PairProducts(), images, cache)["first"].cached_shards == 0


def test_an_interrupted_run_repeats_at_most_one_shard_and_ends_the_same(images, cache, tmp_path):
    undisturbed = score(PairProducts(), images, ShardCache(UPath(tmp_path / "undisturbed")))

    def interrupt(done, _):
        if done > 2 * SHARD:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(PairProducts(), images, cache, progress=interrupt)
    calls = []
    resumed = score(PairProducts(), images, cache, progress=lambda *call: calls.append(call))
    assert all((s.cached_shards, s.computed_shards) == (2, 1) for s in resumed.values())
    assert bits(resumed) == bits(undisturbed)
    # What was found counts neither as done nor as to do.
    assert calls == [(3, 7), (6, 7), (7, 7)]


def test_a_run_killed_between_two_suites_of_a_shard_redoes_the_second_only(
    images, cache, tmp_path, monkeypatch
):
    undisturbed = score(PairProducts(), images, ShardCache(UPath(tmp_path / "undisturbed")))
    commit, commits = ShardCache.commit, []

    def dying(self, key, arrays, *, details):
        if len(commits) == 3:
            raise KeyboardInterrupt
        commits.append(key)
        return commit(self, key, arrays, details=details)

    monkeypatch.setattr(ShardCache, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        score(PairProducts(), images, cache)
    monkeypatch.setattr(ShardCache, "commit", commit)
    encoder = PairProducts()
    resumed = score(encoder, images, cache)
    assert [(s.cached_shards, s.computed_shards) for s in resumed.values()] == [(2, 1), (1, 2)]
    assert encoder.texts == [SUITES["second"]] * 3 + [UNION] * 3
    for suite in SUITES:
        np.testing.assert_allclose(resumed[suite].array, undisturbed[suite].array, rtol=1e-6)


def test_a_flipped_bit_is_caught_and_only_that_shard_of_that_suite_redone(images, cache):
    first = score(PairProducts(), images, cache)
    path = shard_file(cache, first["second"].shards[1])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match=r"probe_logits[\s\S]*damaged"):
        read_scored(first["second"].shards, cache)
    encoder = PairProducts()
    again = score(encoder, images, cache)
    assert [(s.computed_shards, s.repaired_shards) for s in again.values()] == [(0, 0), (1, 1)]
    assert encoder.batches == [3, 3, 2] and encoder.texts == [SUITES["second"]] * 3
    np.testing.assert_allclose(again["second"].array, first["second"].array, rtol=1e-6)
    assert read_scored(again["second"].shards, cache).tobytes() == again["second"].array.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_unusable_logits_stop_the_shard_and_name_file_and_text(images, cache, value):
    encoder = PairProducts()
    encoder.spoil = {(1, 2): value}
    with pytest.raises(
        EncodingError, match=r"1 logit\(s\) of 1 image\(s\) are NaN or infinite[\s\S]*/1\.png[\s\S]*'thief'"
    ):
        score(encoder, images, cache)
    assert not list(Path(cache.root).rglob("*.safetensors"))


def test_logits_of_another_shape_are_refused(images, cache):
    encoder = PairProducts()
    encoder.score_pairs = lambda batch, texts: np.zeros((len(batch), 1), dtype=np.float32)
    with pytest.raises(EncodingError, match=r"another shape[\s\S]*\(8, 1\)[\s\S]*\(8, 4\)"):
        score(encoder, images, cache)


def test_without_memory_the_batch_of_images_is_halved_in_order(images, cache, tmp_path):
    whole = score(PairProducts(), images, ShardCache(UPath(tmp_path / "whole")), batch_rows=8)
    encoder = PairProducts(most_rows=3)
    halved = score(encoder, images, cache, batch_rows=8)
    assert encoder.batches == [2] * 11 + [1] and halved.counters()["fitting_rows"] == 2
    for suite in SUITES:
        np.testing.assert_allclose(halved[suite].array, whole[suite].array, rtol=1e-6)
    assert score(PairProducts(), images, cache, batch_rows=8).forward_passes == 0
    with pytest.raises(EncodingError, match="memory for a single row"):
        score(PairProducts("v", most_rows=0), images, cache)


def test_a_changed_image_is_never_scored_under_its_old_id(images, cache, tmp_path):
    paths, ids = images
    changed = tmp_path / "changed.png"
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(changed)
    with pytest.raises(EncodingError, match=r"has changed since it was recorded[\s\S]*changed\.png"):
        score(PairProducts(), ([changed, *paths[1:]], ids), cache)
    assert not list(Path(cache.root).rglob("*.safetensors"))


def test_nothing_to_score_is_an_empty_array_and_an_empty_suite_an_error(images, cache):
    assert score(PairProducts(), ([], []), cache)["first"].array.shape == (0, 3)
    assert dict(score(PairProducts(), images, cache, {})) == {}
    with pytest.raises(EncodingError, match=r"without texts[\s\S]*third"):
        score(PairProducts(), images, cache, {**SUITES, "third": []})


def test_the_fast_decoder_is_refused(images, cache):
    with pytest.raises(EncodingError, match=r"cannot stand in[\s\S]*decoder: pillow"):
        score(PairProducts(), images, cache, decoder="fast")
