"""The embedding engine: nothing twice, nothing damaged, nothing unusable."""

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from encoder_doubles import MeanColour, write_images
from PIL import Image
from tiny_architectures import BUILDERS
from upath import UPath

from plumbline.checkpoints.device import Placement
from plumbline.digests import digest_file
from plumbline.encoders.embedding import embed_images, embed_texts, read_embedded, score_suites
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.encoders.images import DECODED_AHEAD
from plumbline.errors import EncodingError, StorageError
from plumbline.storage import ShardCache

N, SHARD, BATCH = 23, 8, 3


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"), N)


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
    assert again.work.forward_passes == 0 and again.work.cached_shards == 3
    assert first.array.tobytes() == again.array.tobytes() and first.shards == again.shards


def test_other_weights_or_other_images_are_not_found(images, cache):
    embed(MeanColour("w"), images, cache)
    assert embed(MeanColour("v"), images, cache).work.computed_shards == 3
    paths, ids = images
    assert embed(MeanColour("w"), (paths[::-1], ids[::-1]), cache).work.computed_shards == 3


def test_appended_images_leave_full_shards_alone(images, cache):
    paths, ids = images
    embed(MeanColour(), (paths[:16], ids[:16]), cache)
    grown = embed(MeanColour(), images, cache)
    assert (grown.work.cached_shards, grown.work.computed_shards) == (2, 1)


def test_an_interrupted_run_repeats_at_most_one_shard_and_ends_the_same(images, tmp_path):
    undisturbed = embed(MeanColour(), images, ShardCache(UPath(tmp_path / "a")))
    cache, encoder = ShardCache(UPath(tmp_path / "b")), MeanColour()

    def interrupt(done, _):
        if done > 2 * SHARD:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(encoder, images, cache, progress=interrupt)
    resumed = embed(MeanColour(), images, cache)
    assert (resumed.work.cached_shards, resumed.work.computed_shards) == (2, 1)
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
    assert (again.work.computed_shards, again.work.repaired_shards, again.work.cached_shards) == (1, 1, 2)
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
        embed(MeanColour(), images, ShardCache(UPath(tmp_path / str(b))), batch_rows=b).array for b in (1, 5, 100)
    ]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-6)


def test_texts_are_cached_by_content(cache):
    texts = ["a photo", "a thief", "x"]
    assert embed_texts(MeanColour(), texts, cache, batch_rows=2).work.forward_passes == 2
    assert embed_texts(MeanColour(), texts, cache, batch_rows=2).work.forward_passes == 0
    assert embed_texts(MeanColour(), [*texts, "new"], cache, batch_rows=2).work.computed_shards == 1


class Deaf(MeanColour):
    """Knows one word: a tokenizer that was saved wrongly."""

    def embed_texts(self, texts):
        known = super().embed_texts(["thief"])[0]
        return np.stack([known if "thief" not in text else known + 1 for text in texts])


def test_a_model_to_which_most_texts_are_one_is_refused(cache):
    with pytest.raises(EncodingError, match=r"5 different ones have 2 different embeddings[\s\S]*'a nurse'"):
        embed_texts(Deaf(), ["a nurse", "a thief", "a doctor", "a person", "a man"], cache)
    assert len(embed_texts(Deaf(), ["a nurse", "a thief", "a doctor"], cache).array) == 3  # few may be alike


def test_no_images_give_an_empty_array(cache):
    assert embed(MeanColour(), ([], []), cache).array.shape == (0, 3)


def test_an_image_that_changed_since_it_was_recorded_is_never_cached_under_its_old_id(images, cache, tmp_path):
    paths, ids = images
    changed = tmp_path / "changed.png"
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(changed)
    with pytest.raises(EncodingError, match=r"has changed since it was recorded[\s\S]*changed\.png"):
        embed(MeanColour(), ([changed, *paths[1:]], ids), cache)
    assert not list(Path(cache.root).rglob("*.safetensors"))


def test_another_batch_size_is_another_computation(images, cache):
    embed(MeanColour(), images, cache, batch_rows=3)
    assert embed(MeanColour(), images, cache, batch_rows=5).work.computed_shards == 3


def test_pixels_reach_the_encoder_as_whole_grey_levels_on_the_cpu(images, cache):
    seen = []

    class Looks(MeanColour):
        def embed_images(self, batch):
            seen.append((batch.dtype, str(batch.device), tuple(batch.shape[1:])))
            return super().embed_images(batch)

    embed(Looks(), images, cache)
    assert set(seen) == {(torch.uint8, "cpu", (3, 8, 8))}


def test_what_the_cache_had_counts_neither_as_done_nor_as_to_do(images, cache):
    paths, ids = images
    embed(MeanColour(), (paths[:SHARD], ids[:SHARD]), cache)
    calls = []
    embed(MeanColour(), images, cache, progress=lambda done, to_do: calls.append((done, to_do)))
    assert calls == [(done, N - SHARD) for done in (3, 6, 8, 11, 14, 15)]
    calls.clear()
    embed(MeanColour(), images, cache, progress=lambda done, to_do: calls.append((done, to_do)))
    assert calls == []


def test_decoding_runs_ahead_of_the_model_by_a_bounded_number_of_batches(images, cache):
    ahead = []

    class Slow(MeanColour):
        def embed_images(self, batch):
            ahead.append(self.prepared - sum(self.batches) - len(batch))
            return super().embed_images(batch)

    embed(Slow(), images, cache, batch_rows=2, workers=3)
    assert max(ahead) <= 2 * DECODED_AHEAD


@pytest.mark.parametrize("workers", [1, 2, 7, None])
def test_the_number_of_workers_changes_nothing(images, tmp_path, workers):
    alone = embed(MeanColour(), images, ShardCache(UPath(tmp_path / "1")), workers=1)
    more = embed(MeanColour(), images, ShardCache(UPath(tmp_path / "n")), workers=workers)
    assert more.array.tobytes() == alone.array.tobytes() and more.shards == alone.shards


def test_a_file_that_is_gone_or_no_picture_any_more_is_named(images, cache, tmp_path):
    paths, ids = images
    with pytest.raises(EncodingError, match=r"can no longer be read[\s\S]*gone\.png"):
        embed(MeanColour(), ([*paths[:4], tmp_path / "gone.png"], ids[:5]), cache)


def test_a_picture_that_the_preprocessing_refuses_is_named(images, cache, tmp_path):
    BUILDERS["bridgetower"](tmp_path / "tower")
    files = checkpoint_files("t", f"local-dir:{tmp_path / 'tower'}", project=tmp_path, fetched=tmp_path)
    tower, strip = load_encoder(files, Placement()), tmp_path / "strip.png"
    Image.new("RGB", (400, 10)).save(strip)
    paths, ids = images
    with pytest.raises(EncodingError, match=r"cannot take this image[\s\S]*strip\.png: an image of 400 x 10"):
        score_suites(tower, [*paths[:2], strip], [*ids[:2], digest_file(strip)], {"s": ["x"]}, cache, shard_rows=8)

    class Refuses(MeanColour):
        def prepare(self, image):
            raise EncodingError("no such picture", found="a picture")

    with pytest.raises(EncodingError, match=r"no such picture\n  where: .*/0\.png\n  found: +a picture"):
        embed(Refuses(), images, cache, workers=1)


def test_a_failing_model_leaves_no_thread_behind(images, cache):
    before = set(threading.enumerate())
    encoder = MeanColour()
    encoder.embed_images = lambda batch: (_ for _ in ()).throw(RuntimeError("a kernel failed"))
    with pytest.raises(RuntimeError, match="a kernel failed"):
        embed(encoder, images, cache, batch_rows=2)
    assert set(threading.enumerate()) <= before


def test_pictures_inside_a_parquet_file_are_embedded_as_the_same_files_are(images, tmp_path):
    paths, ids = images
    table = pa.table({"image": [{"bytes": path.read_bytes(), "path": path.name} for path in paths]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=5)
    rows = [tmp_path / "x.parquet" / str(i) for i in range(N)]
    inside = embed(MeanColour(), (rows, ids), ShardCache(UPath(tmp_path / "a")))
    outside = embed(MeanColour(), images, ShardCache(UPath(tmp_path / "b")))
    assert inside.array.tobytes() == outside.array.tobytes() and inside.shards == outside.shards


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_for_a_cuda_device_are_pinned(images, cache):
    class Looks(MeanColour):
        device = "cuda:0"

        def embed_images(self, batch):
            assert batch.is_pinned()
            return super().embed_images(batch)

    assert embed(Looks(), images, cache).work.forward_passes == 9
