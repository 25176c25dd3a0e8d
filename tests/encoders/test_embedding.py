"""The embedding engine: nothing twice, nothing damaged, nothing unusable."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from upath import UPath

from plumbline.digests import digest_file
from plumbline.encoders.embedding import embed_images, embed_texts, read_embedded
from plumbline.encoders.encoder import EncoderIdentity
from plumbline.errors import EncodingError, StorageError
from plumbline.storage import ShardCache

N, SHARD, BATCH = 23, 8, 3


class MeanColour:
    """A whole encoder in four lines: an image is its mean colour, a text its letter counts."""

    def __init__(self, weights="w"):
        self.identity = EncoderIdentity(weights, "p", "b", "pil", "float32")
        self.weights_sha256, self.width, self.logit_scale, self.parameters = weights, 3, 10.0, 0
        self.device, self.batches, self.spoil = "cpu", [], {}

    def prepare(self, image):
        return torch.from_numpy(np.asarray(image, dtype=np.float32).transpose(2, 0, 1).copy())

    def embed_images(self, batch):
        self.batches.append(len(batch))
        rows = batch.mean(dim=(2, 3)).numpy() + 1
        for i, value in self.spoil.items():
            if len(self.batches) == 1:
                rows[i] = value
        return rows

    def embed_texts(self, texts):
        return np.array([[len(t), t.count("a") + 1, 1] for t in texts], dtype=np.float32)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(1)
    paths = []
    for i in range(N):
        paths.append(folder / f"{i}.png")
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(paths[-1])
    return paths, [digest_file(p) for p in paths]


def embed(encoder, images, cache, **options):
    paths, ids = images
    return embed_images(encoder, paths, ids, cache, **{"shard_rows": SHARD, "batch_rows": BATCH, **options})


@pytest.fixture
def cache(tmp_path):
    return ShardCache(UPath(tmp_path))


def test_rows_follow_the_inputs_and_equal_one_by_one(images, cache):
    encoder = MeanColour()
    embedded = embed(encoder, images, cache)
    expected = [np.asarray(Image.open(p), dtype=np.float32).mean(axis=(0, 1)) + 1 for p in images[0]]
    np.testing.assert_allclose(embedded.array, expected, rtol=1e-6)
    assert embedded.counters() == {
        "images_or_texts": N, "forward_passes": 9, "computed_shards": 3, "cached_shards": 0, "repaired_shards": 0,
    }  # fmt: skip


def test_batches_never_cross_a_shard(images, cache):
    encoder = MeanColour()
    embed(encoder, images, cache)
    assert encoder.batches == [3, 3, 2, 3, 3, 2, 3, 3, 1]


def test_a_second_run_does_no_forward_pass_and_gives_the_same_bits(images, cache):
    first = embed(MeanColour(), images, cache)
    again = embed(MeanColour(), images, cache)
    assert again.forward_passes == 0 and again.cached_shards == 3
    assert first.array.tobytes() == again.array.tobytes() and first.shards == again.shards


def test_other_weights_or_other_images_are_not_found(images, cache):
    embed(MeanColour("w"), images, cache)
    assert embed(MeanColour("v"), images, cache).computed_shards == 3
    paths, ids = images
    assert embed(MeanColour("w"), (paths[::-1], ids[::-1]), cache).computed_shards == 3


def test_appended_images_leave_full_shards_alone(images, cache):
    paths, ids = images
    embed(MeanColour(), (paths[:16], ids[:16]), cache)
    grown = embed(MeanColour(), images, cache)
    assert (grown.cached_shards, grown.computed_shards) == (2, 1)


def test_an_interrupted_run_repeats_at_most_one_shard_and_ends_the_same(images, tmp_path):
    undisturbed = embed(MeanColour(), images, ShardCache(UPath(tmp_path / "a")))
    cache, encoder = ShardCache(UPath(tmp_path / "b")), MeanColour()

    def interrupt(done, _):
        if done > 2 * SHARD:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(encoder, images, cache, progress=interrupt)
    resumed = embed(MeanColour(), images, cache)
    assert (resumed.cached_shards, resumed.computed_shards) == (2, 1)
    assert resumed.array.tobytes() == undisturbed.array.tobytes()


def test_a_flipped_bit_is_caught_and_only_that_shard_redone(images, cache):
    first = embed(MeanColour(), images, cache)
    key, sha256 = first.shards[1]
    path = Path(cache.root / key[:2] / f"{sha256}.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        read_embedded(first.shards, cache)
    again = embed(MeanColour(), images, cache)
    assert (again.computed_shards, again.repaired_shards, again.cached_shards) == (1, 1, 2)
    assert again.array.tobytes() == first.array.tobytes() == read_embedded(first.shards, cache).tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_unusable_rows_stop_the_shard_and_are_named(images, cache, value):
    encoder = MeanColour()
    encoder.spoil = {1: value}
    with pytest.raises(EncodingError, match=r"NaN, infinite or of zero norm[\s\S]*/1\.png"):
        embed(encoder, images, cache)
    assert not list(Path(cache.root).rglob("*.safetensors"))


def test_results_do_not_depend_on_the_batch_size(images, tmp_path):
    results = [
        embed(MeanColour(), images, ShardCache(UPath(tmp_path / str(b))), batch_rows=b).array
        for b in (1, 5, 100)
    ]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-6)


def test_texts_are_cached_by_content(cache):
    texts = ["a photo", "a thief", "x"]
    assert embed_texts(MeanColour(), texts, cache, batch_rows=2).forward_passes == 2
    assert embed_texts(MeanColour(), texts, cache, batch_rows=2).forward_passes == 0
    assert embed_texts(MeanColour(), [*texts, "new"], cache, batch_rows=2).computed_shards == 1


def test_no_images_give_an_empty_array(cache):
    assert embed(MeanColour(), ([], []), cache).array.shape == (0, 3)


def test_an_image_that_changed_since_it_was_recorded_is_never_cached_under_its_old_id(
    images, cache, tmp_path
):
    paths, ids = images
    changed = tmp_path / "changed.png"
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(changed)
    with pytest.raises(EncodingError, match=r"has changed since it was recorded[\s\S]*changed\.png"):
        embed(MeanColour(), ([changed, *paths[1:]], ids), cache)
    assert not list(Path(cache.root).rglob("*.safetensors"))


def test_another_batch_size_is_another_computation(images, cache):
    embed(MeanColour(), images, cache, batch_rows=3)
    assert embed(MeanColour(), images, cache, batch_rows=5).computed_shards == 3
