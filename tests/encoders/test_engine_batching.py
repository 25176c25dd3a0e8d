"""Batch sizes: halved where memory is short, measured once for a device, and of no weight in the results."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from encoder_doubles import MeanColour, PairProducts, write_images
from upath import UPath

from plumbline.checkpoints.device import Placement
from plumbline.encoders import batching
from plumbline.encoders.batching import CPU_BATCH_ROWS, CPU_BATCH_SIDE, MOST_ROWS, plan_batch_rows
from plumbline.encoders.embedding import embed_images, embed_texts
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.encoders.images import ImageFiles, image_batches, with_pillow
from plumbline.encoders.sharding import Span
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache
from resources.checkout import PROJECT

N, SHARD, BATCH = 23, 12, 8


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"), N)


@pytest.fixture
def cache(tmp_path):
    return ShardCache(UPath(tmp_path))


def embed(encoder, images, cache, **options):
    paths, ids = images
    return embed_images(encoder, paths, ids, cache, **{"shard_rows": SHARD, "batch_rows": BATCH, **options})


def test_without_memory_the_batch_is_halved_in_order_and_stays_so(images, tmp_path):
    whole = embed(MeanColour(), images, ShardCache(UPath(tmp_path / "whole")))
    encoder = MeanColour(most_rows=3)
    halved = embed(encoder, images, ShardCache(UPath(tmp_path / "halved")))
    # 8, then 4, then 2 fit; nothing larger is tried again.
    assert encoder.batches == [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    np.testing.assert_allclose(halved.array, whole.array, rtol=1e-6)
    assert halved.work.forward_passes == 12 and halved.counters()["fitting_rows"] == 2
    assert whole.work.fitting_rows is None and "fitting_rows" not in whole.counters()


def test_the_planned_size_stays_in_the_key(images, cache):
    embed(MeanColour(most_rows=3), images, cache)
    assert embed(MeanColour(), images, cache).work.forward_passes == 0
    assert embed(MeanColour(), images, cache, batch_rows=2).work.cached_shards == 0


def test_one_row_without_memory_is_an_error_that_says_what_to_do(images, cache):
    with pytest.raises(EncodingError, match=r"memory for a single row[\s\S]*1 rows[\s\S]*bfloat16"):
        embed(MeanColour(most_rows=0), images, cache)
    assert not list(Path(cache.root).rglob("*.safetensors"))


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory",
        "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_every_way_of_saying_it_is_understood(images, cache, words):
    encoder = MeanColour()
    embed_two = encoder.embed_images

    def forward(batch):
        if len(batch) > 4:
            raise RuntimeError(words)
        return embed_two(batch)

    encoder.embed_images = forward
    assert embed(encoder, images, cache).work.fitting_rows == 4


def test_other_errors_of_a_model_are_its_own(images, cache):
    encoder, calls = MeanColour(), []

    def forward(batch):
        calls.append(len(batch))
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    encoder.embed_images = forward
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        embed(encoder, images, cache)
    assert calls == [BATCH]


def test_texts_are_halved_as_well(cache):
    texts = [f"{'a' * i} text" for i in range(9)]
    encoder = MeanColour(most_rows=2)
    embedded = embed_texts(encoder, texts, cache, batch_rows=5)
    assert encoder.batches == [2, 2, 1, 2, 2]
    assert embedded.array[:, 1].tolist() == list(range(1, 10))


def test_the_results_of_a_real_checkpoint_do_not_depend_on_the_batch(images, tmp_path):
    address = f"local-dir:{PROJECT / 'plumbline/world/checkpoints/small-atlas-3k'}"
    files = checkpoint_files("small", address, project=tmp_path, fetched=tmp_path)
    encoder = load_encoder(files, Placement())

    def at(rows):
        return embed(encoder, images, ShardCache(UPath(tmp_path / str(rows))), batch_rows=rows).array

    whole, forward = at(BATCH), encoder.embed_images

    def short_of_memory(batch):
        if len(batch) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(batch)

    largest = np.abs(whole).max()
    for other in (at(1), at(5), at(64)):
        np.testing.assert_allclose(other, whole, rtol=0, atol=1e-5 * largest)
    encoder.embed_images = short_of_memory
    halved = embed(encoder, images, ShardCache(UPath(tmp_path / "halved")))
    assert halved.work.fitting_rows == 2
    np.testing.assert_allclose(halved.array, whole, rtol=0, atol=1e-5 * largest)


class Timed:
    """An accelerator whose passes take a fixed time plus one for each row beyond what it does at once."""

    def __init__(self, at_once, *, kind=MeanColour, most_rows=None):
        self.now, self.trials = 0.0, []
        self.encoder = kind(most_rows=most_rows)
        self.encoder.device = "cuda:0"
        self.encoder.prepare = lambda image: torch.zeros((3, 2, 2), dtype=torch.uint8)
        name = "score_pairs" if kind is PairProducts else "embed_images"
        forward = getattr(self.encoder, name)

        def timed(batch, *texts):
            self.trials.append(len(batch))
            result = forward(batch, *texts)
            self.now += max(1.0, len(batch) / at_once)
            return result

        setattr(self.encoder, name, timed)

    def clock(self):
        return self.now


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setattr(batching, "device_name", lambda device: f"accelerator {device}")


@pytest.mark.parametrize("kind", [MeanColour, PairProducts])
@pytest.mark.parametrize(
    ("at_once", "most_rows", "expected"),
    [
        (200, None, 256),  # 128 to 256 gains 56%, 256 to 512 nothing
        (1e9, None, MOST_ROWS),
        (1e9, 100, 64),  # memory ends it
        (1, None, 8),  # no gain at all
        (1e9, 3, 2),  # not even the first trial fits
        (1e9, 1, 1),
    ],
)
def test_the_batch_is_doubled_while_it_pays_and_fits(cache, accelerator, kind, at_once, most_rows, expected):
    timed = Timed(at_once, kind=kind, most_rows=most_rows)
    assert plan_batch_rows(timed.encoder, cache, shard_rows=MOST_ROWS, clock=timed.clock) == expected


def test_a_measured_size_is_kept_for_these_weights_and_this_device(cache, accelerator, monkeypatch):
    first = Timed(200)
    assert plan_batch_rows(first.encoder, cache, shard_rows=MOST_ROWS, clock=first.clock) == 256
    again = Timed(1e9)
    assert plan_batch_rows(again.encoder, cache, shard_rows=MOST_ROWS, clock=again.clock) == 256 and again.trials == []
    again.encoder.identity = MeanColour("other weights").identity
    assert plan_batch_rows(again.encoder, cache, shard_rows=MOST_ROWS, clock=again.clock) == MOST_ROWS
    monkeypatch.setattr(batching, "device_name", lambda device: "another accelerator")
    elsewhere = Timed(20)
    assert plan_batch_rows(elsewhere.encoder, cache, shard_rows=MOST_ROWS, clock=elsewhere.clock) == 32


@pytest.mark.parametrize("text", ["{", "[]", '{"batch_rows": 0}', '{"batch_rows": "many"}'])
def test_a_damaged_note_of_the_size_is_measured_again(cache, accelerator, text):
    timed = Timed(200)
    plan_batch_rows(timed.encoder, cache, shard_rows=MOST_ROWS, clock=timed.clock)
    (note,) = Path(cache.root).rglob("batch-sizes/*.json")
    note.write_text(text)
    assert plan_batch_rows(timed.encoder, cache, shard_rows=MOST_ROWS, clock=timed.clock) == 256
    assert json.loads(note.read_text())["batch_rows"] == 256


def test_a_device_too_small_for_one_image_is_an_error(cache, accelerator):
    timed = Timed(1, most_rows=0)
    with pytest.raises(EncodingError, match=r"memory for a single row[\s\S]*cuda:0"):
        plan_batch_rows(timed.encoder, cache, shard_rows=MOST_ROWS, clock=timed.clock)


@pytest.mark.parametrize("kind", [MeanColour, PairProducts])
@pytest.mark.parametrize(("shard_rows", "expected"), [(512, 512), (500, 256), (16, 16), (5, 5), (1, 1)])
def test_a_batch_that_would_pass_a_shard_is_not_tried(cache, accelerator, kind, shard_rows, expected):
    timed = Timed(1e9, kind=kind)
    rows = plan_batch_rows(timed.encoder, cache, shard_rows=shard_rows, clock=timed.clock)
    assert rows == expected == max(timed.trials)
    larger = plan_batch_rows(timed.encoder, cache, shard_rows=4 * shard_rows, clock=timed.clock)
    assert larger > rows, "a size that a shard cut short is not taken for larger shards"


def test_memory_that_ends_below_a_small_shard_is_found(cache, accelerator):
    timed = Timed(1e9, most_rows=2)
    assert plan_batch_rows(timed.encoder, cache, shard_rows=6, clock=timed.clock) == 1
    assert timed.trials[:3] == [6, 3, 1] and set(timed.trials[3:]) == {1}


class Sized(MeanColour):
    """A double that prepares every image as (height, width) pixels."""

    def __init__(self, height, width=None):
        super().__init__()
        self.shape = (3, height, width or height)

    def prepare(self, image):
        return torch.full(self.shape, 7, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32,), 64),
        ((224,), 64),
        ((225,), 32),
        ((288,), 32),
        ((224, 448), 32),
        ((336,), 16),
        ((960,), 2),
        ((1008,), 2),
        ((2000,), 1),
        ((5000,), 1),
    ],
)
def test_on_a_cpu_the_rows_follow_from_the_pixels_of_a_prepared_image(cache, shape, expected):
    encoder = Sized(*shape)
    assert plan_batch_rows(encoder, cache, shard_rows=512) == expected
    pixels = expected * encoder.shape[1] * encoder.shape[2]
    assert expected == 1 or pixels <= CPU_BATCH_ROWS * CPU_BATCH_SIDE**2
    assert encoder.batches == [] and not list(Path(cache.root).iterdir()), "nothing is measured or kept"


def test_what_was_wanted_is_taken(cache):
    encoder = Sized(5000)
    assert plan_batch_rows(encoder, cache, 7, shard_rows=5) == 7


def test_without_a_size_images_are_embedded_at_the_planned_one(images, cache):
    encoder = Sized(448)
    embed(encoder, images, cache, batch_rows=None, shard_rows=20)
    assert encoder.batches == [16, 4, 3]
    assert embed(encoder, images, cache, batch_rows=16, shard_rows=20).work.forward_passes == 0


def test_batches_for_a_gpu_are_the_same_grey_levels_in_pinned_memory(tmp_path, monkeypatch):
    files, asked, empty = ImageFiles(*write_images(tmp_path, 5)), [], torch.empty

    def without_a_gpu(*shape, pin_memory, **options):
        asked.append(pin_memory)
        return empty(*shape, **options)

    def batches(device):
        with image_batches(files, [Span(0, 3), Span(3, 5)], with_pillow(MeanColour()), device=device) as stacked:
            return list(stacked)

    expected = batches("cpu")
    monkeypatch.setattr(torch, "empty", without_a_gpu)
    for pinned, plain in zip(batches("cuda:0"), expected, strict=True):
        assert pinned.dtype == torch.uint8 and torch.equal(pinned, plain)
    assert asked == [True, True]
