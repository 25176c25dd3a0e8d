"""Pair scoring: one pass over an image whatever the number of suites, each suite kept by itself, nothing twice."""

from pathlib import Path

import numpy as np
import pytest
from encoder_doubles import MeanColour, PairProducts, write_images
from PIL import Image
from tiny_architectures import BUILDERS, TEXTS
from upath import UPath

from plumbline.checkpoints.device import Placement
from plumbline.encoders.embedding import embed_images, score_suites
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache

N, SHARD, BATCH = 23, 8, 3
PASSES = 3 + 3 + 3
SUITES = {"first": ["a", "a banana", "thief"], "second": ["a banana", "saint"]}
BOTH = list(SUITES.values())


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"), N)


@pytest.fixture
def cache(tmp_path):
    return ShardCache(UPath(tmp_path / "cache"))


def score(encoder, images, cache, suites=SUITES, **options):
    paths, ids = images
    return score_suites(encoder, paths, ids, suites, cache, **{"shard_rows": SHARD, "batch_rows": BATCH, **options})


def shard_file(cache, shard):
    key, sha256 = shard
    return Path(cache.root / key[:2] / f"{sha256}.safetensors")


def bits(scored):
    return {suite: result.array.tobytes() for suite, result in scored.suites.items()}


def test_logits_equal_the_models_own_of_each_image_and_text(images, cache):
    scored = score(PairProducts(), images, cache)
    colours = [np.asarray(Image.open(p), dtype=np.float64).mean(axis=(0, 1)) for p in images[0]]
    for suite, texts in SUITES.items():
        counts = np.array([[len(t), t.count("a") + 1, 1] for t in texts])
        assert scored.suites[suite].array.dtype == np.float32
        np.testing.assert_allclose(scored.suites[suite].array, colours @ counts.T, rtol=1e-5)


def test_suites_that_are_missing_together_take_one_pass_over_the_images(images, cache):
    encoder = PairProducts()
    scored = score(encoder, images, cache)
    assert encoder.batches == [3, 3, 2, 3, 3, 2, 3, 3, 1]
    assert all(suites == BOTH for suites in encoder.texts)
    assert scored.counters() == {
        "images": N, "forward_passes": PASSES, "computed_shards": 6, "cached_shards": 0, "repaired_shards": 0,
    }  # fmt: skip
    assert scored.shards == scored.suites["first"].shards + scored.suites["second"].shards
    assert len(set(scored.shards)) == 6


def test_a_second_run_does_no_forward_pass_and_gives_the_same_bits(images, cache):
    first, encoder = score(PairProducts(), images, cache), PairProducts()
    again = score(encoder, images, cache)
    assert again.work.forward_passes == 0 and encoder.prepared == 0
    assert bits(first) == bits(again) and first.shards == again.shards


def test_a_new_suite_leaves_what_is_kept_of_the_others(images, cache):
    first = score(PairProducts(), images, cache, {"first": SUITES["first"]})
    encoder = PairProducts()
    both = score(encoder, images, cache)
    assert both.suites["first"].shards == first.shards
    assert (both.work.cached_shards, both.work.computed_shards, both.work.forward_passes) == (3, 3, PASSES)
    assert all(suites == [SUITES["second"]] for suites in encoder.texts)


def test_the_cache_goes_by_texts_images_and_weights_not_by_the_suites_id(images, cache):
    def computed(encoder, images, suites=SUITES, **options):
        return score(encoder, images, cache, suites, **options).work.computed_shards

    assert computed(PairProducts(), images) == 6
    assert computed(PairProducts(), images, {"other": SUITES["second"]}) == 0
    assert computed(PairProducts(), images, {"second": SUITES["second"][::-1]}) == 3
    assert computed(PairProducts("v"), images) == 6
    paths, ids = images
    assert computed(PairProducts(), (paths[::-1], ids[::-1])) == 6
    assert computed(PairProducts(), images, batch_rows=4) == 6


def test_pairs_and_embeddings_of_one_identity_do_not_meet(images, cache):
    paths, ids = images
    embed_images(MeanColour(), paths, ids, cache, shard_rows=SHARD, batch_rows=BATCH)
    assert score(PairProducts(), images, cache).work.cached_shards == 0


def test_an_interrupted_run_repeats_at_most_one_shard_and_ends_the_same(images, cache, tmp_path):
    undisturbed = score(PairProducts(), images, ShardCache(UPath(tmp_path / "undisturbed")))

    def interrupt(done, _):
        if done > 2 * SHARD:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(PairProducts(), images, cache, progress=interrupt)
    calls = []
    resumed = score(PairProducts(), images, cache, progress=lambda *call: calls.append(call))
    assert (resumed.work.cached_shards, resumed.work.computed_shards) == (4, 2)
    assert bits(resumed) == bits(undisturbed)
    # What was found counts neither as done nor as to do.
    assert calls == [(3, 7), (6, 7), (7, 7)]


class LastBits(PairProducts):
    """Pairs whose last bits depend on where they stand in the pass of their suite, as those of large products do."""

    def score_pairs(self, batch, *suites):
        logits = super().score_pairs(batch, *suites)
        places = [np.arange(len(batch) * len(s), dtype=np.float32).reshape(len(batch), -1) for s in suites]
        return logits * (1 + np.concatenate(places, axis=1) * np.float32(1e-6))


def test_a_run_killed_between_two_suites_of_a_shard_ends_with_the_same_bits(images, cache, tmp_path, monkeypatch):
    undisturbed = score(LastBits(), images, ShardCache(UPath(tmp_path / "undisturbed")))
    commit, commits = ShardCache.commit, []

    def dying(self, key, arrays, *, details):
        if len(commits) == 3:
            raise KeyboardInterrupt
        commits.append(key)
        return commit(self, key, arrays, details=details)

    monkeypatch.setattr(ShardCache, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        score(LastBits(), images, cache)
    monkeypatch.setattr(ShardCache, "commit", commit)
    encoder = LastBits()
    resumed = score(encoder, images, cache)
    assert (resumed.work.cached_shards, resumed.work.computed_shards) == (3, 3)
    assert encoder.texts == [[SUITES["second"]]] * 3 + [BOTH] * 3, "the second shard is found by half"
    assert bits(resumed) == bits(undisturbed) and resumed.shards == undisturbed.shards


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("batch", [BATCH, SHARD])
def test_a_shard_that_was_deleted_comes_back_with_the_same_bits(images, cache, suite, batch):
    first = score(LastBits(), images, cache, batch_rows=batch)
    path = shard_file(cache, first.suites[suite].shards[1])
    data = path.read_bytes()
    path.unlink()
    again = score(LastBits(), images, cache, batch_rows=batch)
    assert (again.work.computed_shards, again.work.repaired_shards, again.work.cached_shards) == (1, 1, 5)
    assert path.read_bytes() == data and bits(again) == bits(first)


def test_a_real_model_gives_a_deleted_shard_again_bit_by_bit(images, cache, tmp_path):
    BUILDERS["bridgetower"](tmp_path / "tower")
    files = checkpoint_files("t", f"local-dir:{tmp_path / 'tower'}", project=tmp_path, fetched=tmp_path)
    tower, suites = load_encoder(files, Placement()), {"long": TEXTS, "short": TEXTS[1:3]}
    first = score(tower, images, cache, suites)
    path = shard_file(cache, first.suites["short"].shards[2])
    data = path.read_bytes()
    path.unlink()
    assert score(tower, images, cache, suites).work.computed_shards == 1
    assert path.read_bytes() == data


def test_the_order_of_the_suites_is_of_no_weight(images, cache, tmp_path):
    one_way = score(LastBits(), images, cache)
    turned = dict(reversed(SUITES.items()))
    other_way = score(LastBits(), images, ShardCache(UPath(tmp_path / "other")), turned)
    assert bits(one_way) == bits(other_way)


def test_a_flipped_bit_is_caught_and_only_that_shard_of_that_suite_redone(images, cache):
    first = score(PairProducts(), images, cache)
    path = shard_file(cache, first.suites["second"].shards[1])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    encoder = PairProducts()
    again = score(encoder, images, cache)
    assert (again.work.computed_shards, again.work.repaired_shards) == (1, 1)
    assert encoder.batches == [3, 3, 2] and again.shards == first.shards and bits(again) == bits(first)


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
    encoder.score_pairs = lambda batch, *suites: np.zeros((len(batch), 1), dtype=np.float32)
    with pytest.raises(EncodingError, match=r"another shape[\s\S]*\(8, 1\)[\s\S]*\(8, 5\)"):
        score(encoder, images, cache)


def test_without_memory_the_batch_of_images_is_halved_in_order(images, cache, tmp_path):
    whole = score(PairProducts(), images, ShardCache(UPath(tmp_path / "whole")), batch_rows=8)
    encoder = PairProducts(most_rows=3)
    halved = score(encoder, images, cache, batch_rows=8)
    assert encoder.batches == [2] * 11 + [1] and halved.counters()["fitting_rows"] == 2
    for suite in SUITES:
        np.testing.assert_allclose(halved.suites[suite].array, whole.suites[suite].array, rtol=1e-6)
    assert score(PairProducts(), images, cache, batch_rows=8).work.forward_passes == 0
    with pytest.raises(EncodingError, match="memory for a single row"):
        score(PairProducts("v", most_rows=0), images, cache)


def test_a_changed_image_is_never_scored_under_its_old_id(images, cache, tmp_path):
    paths, ids = images
    changed = tmp_path / "changed.png"
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(changed)
    with pytest.raises(EncodingError, match=r"has changed since it was recorded[\s\S]*changed\.png"):
        score(PairProducts(), ([changed, *paths[1:]], ids), cache)
    assert not list(Path(cache.root).rglob("*.safetensors"))


def test_nothing_to_score_is_an_empty_array(images, cache):
    assert score(PairProducts(), ([], []), cache).suites["first"].array.shape == (0, 3)
    assert score(PairProducts(), images, cache, {}).suites == {}


def test_the_fast_decoder_is_refused(images, cache):
    with pytest.raises(EncodingError, match=r"cannot stand in[\s\S]*decoder: pillow"):
        score(PairProducts(), images, cache, decoder="fast")


def test_a_real_model_gives_a_suite_the_same_bits_whatever_stands_beside_it(images, cache, tmp_path):
    BUILDERS["bridgetower"](tmp_path / "tower")
    files = checkpoint_files("t", f"local-dir:{tmp_path / 'tower'}", project=tmp_path, fetched=tmp_path)
    tower, suites = load_encoder(files, Placement()), {"long": TEXTS, "short": TEXTS[1:3]}
    together = score(tower, images, cache, suites)
    for suite, texts in suites.items():
        alone = score(tower, images, ShardCache(UPath(tmp_path / suite)), {suite: texts})
        assert bits(alone)[suite] == bits(together)[suite]
