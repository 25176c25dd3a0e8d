"""The fast decoder: for plain JPEG files only, and only where the embeddings stay what they are."""

import io
import sys

import numpy as np
import pytest
from encoder_doubles import MeanColour, jpeg_bytes, photograph
from PIL import Image
from upath import UPath

from plumbline.checkpoints.device import Placement
from plumbline.digests import digest_bytes
from plumbline.encoders import images as decoder_gate
from plumbline.encoders.batching import OomRetry
from plumbline.encoders.embedding import embed_images
from plumbline.encoders.encoder import Crop
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.encoders.images import (
    GATE_IMAGES,
    LEAST_COSINE,
    DecoderGate,
    FastDecoder,
    ImageFiles,
    require_equal_embeddings,
    with_pillow,
)
from plumbline.encoders.torch_encoder import grey_levels
from plumbline.errors import ConfigError, EncodingError, ImageRejected
from plumbline.storage import ShardCache
from resources.checkout import PROJECT

SIZE = 64

ORIENTATION = 0x0112


class Cropping(MeanColour):
    """A double that resizes and crops as CLIP does; the middle of an odd margin is rounded as asked."""

    crop = Crop(SIZE, "bicubic")

    def __init__(self, *args, round_up=False, **options):
        super().__init__(*args, **options)
        self.round_up = round_up

    def prepare(self, image):
        self.prepared += 1
        width, height = image.size
        long = int(SIZE * max(width, height) / min(width, height))
        if min(width, height) != SIZE:
            size = (SIZE, long) if width <= height else (long, SIZE)
            image = image.resize(size, Image.Resampling.BICUBIC)
        corner = [(side - SIZE + self.round_up) // 2 for side in image.size]
        return grey_levels(image.crop((*corner, corner[0] + SIZE, corner[1] + SIZE)))


class Parity(Cropping):
    """An embedding that one grey level turns around."""

    def embed_images(self, batch):
        self.enter(batch)
        odd = (batch[:, :, ::7, ::7].flatten(1).int() % 2) * 2 - 1
        return odd.float().numpy()

    width = 3 * 10 * 10


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("p")
    address = f"local-dir:{PROJECT / 'plumbline/world/checkpoints/small-atlas-3k'}"
    return load_encoder(checkpoint_files("small", address, project=folder, fetched=folder), Placement())


@pytest.fixture
def cache(tmp_path):
    return ShardCache(UPath(tmp_path / "cache"))


def written(folder, contents):
    """Return paths and ids of files with the given bytes."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{i:02}.jpg" for i in range(len(contents))]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    return paths, [digest_bytes(data) for data in contents]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    sizes = [(100, 75), (75, 100), (64, 64), (211, 160), (300, 67)]
    contents = [jpeg_bytes(photograph(i, sizes[i % 5])) for i in range(40)]
    return written(tmp_path_factory.mktemp("photographs"), contents)


def embed(encoder, images, cache, **options):
    paths, ids = images
    return embed_images(encoder, paths, ids, cache, **{"shard_rows": 16, "batch_rows": 8, "decoder": "fast", **options})


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("size", [(100, 75), (75, 100), (64, 64), (65, 64), (131, 40), (40, 47), (300, 250)])
def test_plain_files_differ_by_two_grey_levels_at_most(encoder, size, subsampling, mode):
    data = jpeg_bytes(photograph(3, size, mode=mode), subsampling=subsampling)
    fast = FastDecoder(encoder)
    assert fast.takes(data)
    own, quick = with_pillow(encoder)(data), fast(data)
    assert quick.shape == own.shape and quick.dtype == own.dtype and quick.is_contiguous()
    assert (quick.int() - own.int()).abs().max() <= 2


def test_large_files_are_shrunk_while_they_are_decoded(encoder, monkeypatch):
    data, fast, sizes = jpeg_bytes(photograph(4, (1000, 700))), FastDecoder(encoder), []
    resized = fast._resized
    monkeypatch.setattr(
        fast, "_resized", lambda pixels, *target: (sizes.append(pixels.shape), resized(pixels, *target))[1]
    )
    own, quick = with_pillow(encoder)(data), fast(data)
    # 700 / 4 is 175, more than twice 64; 700 / 8 is not.
    assert sizes == [(175, 250, 3)]
    assert np.array_equal(quick.shape, own.shape)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize(
    ("shorter", "factor"), [(255, 1), (257, 2), (384, 2), (399, 2), (512, 4), (701, 4), (1024, 8), (1303, 8)]
)
def test_a_file_that_shrinks_while_it_is_decoded_keeps_its_pixels_to_three_grey_levels(shorter, factor, subsampling):
    double, apart = Cropping(), []
    fast, own_way = FastDecoder(double), with_pillow(double)
    assert fast._reduction(shorter) == factor
    for seed in range(2):
        size = (shorter, shorter * 5 // 4)[:: 1 if seed % 2 else -1]
        data = jpeg_bytes(photograph(seed, size), subsampling=subsampling)
        apart.append((fast(data).int() - own_way(data).int()).abs())
    assert max(int(pixels.max()) for pixels in apart) <= 3
    assert max(float(pixels.float().mean()) for pixels in apart) < 0.5


@pytest.mark.parametrize("round_up", [False, True])
@pytest.mark.parametrize("size", [(65, 64), (67, 64), (64, 69), (64, 64)])
def test_the_crop_is_the_encoders_own_however_it_rounds(size, round_up):
    double = Cropping(round_up=round_up)
    data = jpeg_bytes(photograph(5, size), quality=100, subsampling="4:4:4")
    quick, own = FastDecoder(double)(data), with_pillow(double)(data)
    assert (quick.int() - own.int()).abs().max() <= 2
    moved = with_pillow(Cropping(round_up=not round_up))(data)
    if size != (64, 64):
        assert (quick.int() - moved.int()).abs().max() > 2


def exif(orientation):
    block = Image.Exif()
    block[ORIENTATION] = orientation
    return block


OTHER_FILES = {
    "png": lambda: _saved("PNG"),
    "webp": lambda: _saved("WEBP"),
    "progressive": lambda: jpeg_bytes(photograph(1, (90, 80)), progressive=True),
    "CMYK": lambda: jpeg_bytes(photograph(1, (90, 80), mode="CMYK")),
    "RGB without a colour transform": lambda: jpeg_bytes(photograph(1, (90, 80)), keep_rgb=True),
    **{
        f"turned {turn}": lambda turn=turn: jpeg_bytes(photograph(1, (90, 80)), exif=exif(turn)) for turn in range(2, 9)
    },
}


def _saved(kind):
    buffer = io.BytesIO()
    photograph(1, (90, 80)).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_every_other_file_goes_the_checkpoints_own_way(encoder, kind):
    data, fast = OTHER_FILES[kind](), FastDecoder(encoder)
    assert not fast.takes(data)
    assert np.array_equal(fast(data), with_pillow(encoder)(data))


def test_an_upright_exif_block_is_no_obstacle(encoder):
    assert FastDecoder(encoder).takes(jpeg_bytes(photograph(1, (90, 80)), exif=exif(1)))
    big_endian = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    assert not FastDecoder(encoder).takes(jpeg_bytes(photograph(1, (90, 80)), exif=big_endian))


def test_what_pillow_refuses_is_refused(encoder):
    fast, data = FastDecoder(encoder), jpeg_bytes(photograph(1, (90, 80)))
    for bad in (data[: len(data) // 2], b"no picture", jpeg_bytes(photograph(1, (90, 1)))):
        assert not fast.takes(bad)
        with pytest.raises(ImageRejected):
            fast(bad)


def test_a_real_checkpoint_passes_the_gate_and_keeps_its_answer(encoder, photographs, cache):
    own = embed(encoder, photographs, cache, decoder="pillow")
    quick = embed(encoder, photographs, cache)
    assert quick.work.cached_shards == 0 and quick.gate.images == GATE_IMAGES
    # 40 images in shards of 16: 2 + 2 + 1 batches of 8, and the gate's two.
    assert quick.work.forward_passes == 5 + 2
    cosines = (own.array * quick.array).sum(1) / (
        np.linalg.norm(own.array, axis=1) * np.linalg.norm(quick.array, axis=1)
    )
    assert LEAST_COSINE <= quick.gate.least_cosine < 1
    assert quick.gate.least_cosine == pytest.approx(cosines[:GATE_IMAGES].min(), abs=1e-6)
    assert quick.gate.worst == str(photographs[0][int(cosines[:GATE_IMAGES].argmin())])
    again = embed(encoder, photographs, cache)
    assert again.work.forward_passes == 0 and again.gate == quick.gate
    assert again.counters()["decoder_gate_least_cosine"] == quick.gate.least_cosine


def test_moved_embeddings_stop_the_run_with_the_worst_file(photographs, cache):
    with pytest.raises(EncodingError, match=r"moves the embeddings[\s\S]*\.jpg[\s\S]*cosine[\s\S]*decoder: pillow"):
        embed(Parity(), photographs, cache)
    assert embed(Parity(), photographs, cache, decoder="pillow").work.cached_shards == 0
    encoder = Parity()
    with pytest.raises(EncodingError, match="moves the embeddings"):
        embed(encoder, photographs, cache)
    assert encoder.batches == [], "a refusal is found again without a pass"


def test_a_gate_of_nan_is_shut(photographs, cache):
    encoder = Cropping()
    encoder.spoil = {5: np.nan}
    with pytest.raises(EncodingError, match=r"moves the embeddings[\s\S]*05\.jpg[\s\S]*nan"):
        embed(encoder, photographs, cache)


def test_the_gate_looks_at_files_that_go_the_fast_way(tmp_path, cache):
    turned = [jpeg_bytes(photograph(i, (80, 70)), exif=exif(6)) for i in range(GATE_IMAGES + 3)]
    plain = [jpeg_bytes(photograph(i, (80, 70))) for i in range(2)]
    assert embed(Cropping(), written(tmp_path / "both", turned + plain), cache).gate.images == 2
    assert embed(Cropping(), ([], []), cache).gate.images == 0


def test_without_a_plain_file_among_the_first_the_fast_decoder_is_not_used(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(decoder_gate, "MOST_LOOKED_AT", 6)
    turned = [jpeg_bytes(photograph(i, (80, 70)), exif=exif(6)) for i in range(8)]
    images = written(tmp_path / "turned", [*turned, jpeg_bytes(photograph(9, (80, 70)))])
    encoder, files, looked_at, read = Cropping(), ImageFiles(*images), [], ImageFiles.read
    with monkeypatch.context() as patch:
        patch.setattr(ImageFiles, "read", lambda self, row: (looked_at.append(row), read(self, row))[1])
        fast = FastDecoder(encoder)
        gate = require_equal_embeddings(encoder, fast, files, cache, OomRetry(encoder.embed_images))
    assert looked_at == [0, 1, 2, 3, 4, 5] and encoder.batches == []
    assert gate == DecoderGate(fast.name, 0, 6, None, None) and not gate.used
    quick = embed(encoder, images, cache)
    assert quick.gate == gate
    assert [quick.counters()[name] for name in ("fast_decoder_used", "decoder_gate_looked_at")] == [0, 6]
    own = embed(encoder, images, cache, decoder="pillow")
    assert own.shards == quick.shards and own.work.computed_shards == 0


def test_an_image_that_is_added_does_not_repeat_the_gate(photographs, cache, monkeypatch):
    paths, ids = photographs
    first = embed(Cropping(), (paths[:36], ids[:36]), cache)
    assert first.gate.looked_at == first.gate.images == GATE_IMAGES
    assert first.counters()["fast_decoder_used"] == 1
    encoder = Cropping()
    assert embed(encoder, photographs, cache).gate == first.gate
    # Shards of 16: the first two are found; the last, of 4 images before, has 8 now. No pass is the gate's.
    assert encoder.batches == [8]
    # Where all is found, no file is read.
    monkeypatch.setattr(ImageFiles, "read", lambda files, row: pytest.fail("read"))
    assert embed(Cropping(), photographs, cache).gate == first.gate


def test_an_encoder_with_another_preprocessing_is_refused(photographs, cache):
    with pytest.raises(EncodingError, match=r"cannot stand in[\s\S]*double[\s\S]*decoder: pillow"):
        embed(MeanColour(), photographs, cache)

    class Darkening(Cropping):
        def prepare(self, image):
            return super().prepare(image) // 2

    with pytest.raises(EncodingError, match="more to an image of the right size than to crop it"):
        embed(Darkening(), photographs, cache)


def test_without_the_package_the_error_says_how_to_install_it(photographs, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    with pytest.raises(ConfigError, match=r"simplejpeg[\s\S]*pip install[\s\S]*\[fast\]"):
        embed(Cropping(), photographs, cache)
    assert embed(Cropping(), photographs, cache, decoder="pillow").work.computed_shards == 3
