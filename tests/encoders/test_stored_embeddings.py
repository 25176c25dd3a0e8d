"""Embeddings that were computed elsewhere: each image has its vector, or there is an error that says where.

The layouts are those that clip-retrieval writes (rom1504/clip-retrieval, clip_retrieval/clip_inference/writer.py:
`OutputSink`): made by hand, as its pins do not fit ours.
"""

import io
import os
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError
from upath import UPath

from plumbline.catalog.suites import ZeroShotSettings, load_suite, zero_shot_suite
from plumbline.checkpoints.device import Placement
from plumbline.config.entries import EncoderEntry
from plumbline.digests import digest_file
from plumbline.encoders import stored_embeddings
from plumbline.encoders.embedding import embed_classes, embed_texts, keep_vectors, read_embedded
from plumbline.encoders.families import FAMILIES, answers
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.encoders.plan import architecture_summary
from plumbline.encoders.stored_embeddings import EmbeddingsSettings, lacking_texts
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache

CHECKPOINTS = Path(__file__).parents[2] / "plumbline" / "world" / "checkpoints"
PATHS = ["train/a.jpg", "train/b.jpg", "val/c.png", "val/d.png", "val/e.png"]
IMAGES = pl.DataFrame({"path": PATHS, "image_id": [f"{i}" * 64 for i in range(5)]})
TEXTS = load_suite("crime").texts
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(5, 8)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
OF_TEXTS = RNG.normal(size=(len(TEXTS), 8)).astype(np.float32)


def clip_retrieval(folder, names, vectors, *, kind="img", column="image_path", cut=3):
    """Write two parts, as `OutputSink` numbers them of ten and more: zeros before the number."""
    for sub in (f"{kind}_emb", "metadata"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    for number, part in enumerate((slice(None, cut), slice(cut, None))):
        np.save(folder / f"{kind}_emb" / f"{kind}_emb_{number:02d}.npy", vectors[part])
        pl.DataFrame({column: names[part]}).write_parquet(folder / "metadata" / f"metadata_{number:02d}.parquet")


def texts(folder, names=TEXTS, vectors=OF_TEXTS):
    np.savez(folder / "prompts.npz", caption=np.array(names), embedding=vectors)


def opened(folder, **settings):
    read_as = EmbeddingsSettings(**settings)
    files = checkpoint_files("e", f"stored:{folder}", project=folder, fetched=folder, embeddings=read_as)
    return load_encoder(files, Placement.choose(device="cpu"))


def as_npz_of_bytes(folder):
    np.savez(folder / "images.npz", image_path=np.array(PATHS, dtype=bytes), embedding=VECTORS)


def as_npz(folder):
    np.savez(folder / "images.npz", image_path=np.array(PATHS), embedding=VECTORS)


def as_parquet(folder):
    rows = pl.DataFrame({"image_path": IMAGES["image_id"], "embedding": VECTORS.tolist(), "caption": PATHS})
    rows.reverse().write_parquet(folder / "images.parquet")


LAYOUTS = {
    "absolute paths in float16": lambda f: clip_retrieval(f, [f"/data/{p}" for p in PATHS], VECTORS.astype(np.float16)),
    "keys of a webdataset": lambda f: clip_retrieval(f, [p[-5] for p in PATHS], VECTORS, cut=2),
    "a folder for the dataset": lambda f: clip_retrieval(f / "faces", PATHS, VECTORS),
    "npz": as_npz,
    "npz with names as bytes": as_npz_of_bytes,
    "Parquet by sha256 in another order": as_parquet,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_each_image_its_vector_and_each_text_its_own(tmp_path, layout):
    LAYOUTS[layout](tmp_path)
    texts(tmp_path)
    encoder = opened(tmp_path)
    found = encoder.images("faces", IMAGES)
    half = "float16" in layout
    np.testing.assert_allclose(found.vectors, VECTORS, atol=1e-3 if half else 0)
    assert (found.surplus, [one.code for one in found.notes]) == (0, ["stored_in_half_precision"] * half)
    assert encoder.known(["a thief", TEXTS[3]]) == (TEXTS[3],)
    cache = ShardCache(UPath(tmp_path / "cache"))
    kept = keep_vectors(encoder, found.vectors, IMAGES["image_id"].to_list(), cache, shard_rows=2)
    np.testing.assert_array_equal(read_embedded(kept.shards, cache), found.vectors)
    np.testing.assert_array_equal(embed_texts(encoder, TEXTS, cache).array, OF_TEXTS)
    assert kept.work.forward_passes == 0 and encoder.family == "stored_vectors"
    assert architecture_summary("e", f"stored:{tmp_path}", tmp_path).family.name == "stored_vectors"
    if "npz" in layout:
        assert encoder.weights_sha256 == digest_file(tmp_path / "images.npz"), "of one file its own, as sha256sum says"


def test_a_file_is_read_alone_whatever_lies_beside_it(tmp_path):
    """One npz a model in a folder: what another file holds is another model's."""
    names, halves = np.array(PATHS), {"a": slice(None, 3), "b": slice(3, None)}
    for name, half in halves.items():
        np.savez(tmp_path / f"{name}.npz", image_path=names[half], embedding=VECTORS[half])
    read_as = {"texts": f"stored:{tmp_path / 'prompts.npz'}"}
    texts(tmp_path)
    alone = opened(tmp_path / "a.npz", **read_as)
    np.testing.assert_array_equal(alone.images("faces", IMAGES.head(3)).vectors, VECTORS[:3])
    with pytest.raises(EncodingError, match="have no stored embedding"):
        alone.images("faces", IMAGES)
    np.savez(tmp_path / "whole.npz", image_path=names, embedding=VECTORS, caption=np.array(TEXTS[: len(names)]))
    np.testing.assert_array_equal(opened(tmp_path / "whole.npz", **read_as).images("faces", IMAGES).vectors, VECTORS)


def test_texts_may_lie_elsewhere_and_suites_without_theirs_are_named(tmp_path):
    clip_retrieval(tmp_path / "images", PATHS, 3 * VECTORS)
    clip_retrieval(tmp_path / "prompts", list(TEXTS), OF_TEXTS, kind="text", column="caption")
    read_as = EmbeddingsSettings(texts=f"stored:{tmp_path / 'prompts'}")
    files = checkpoint_files(
        "e", f"stored:{tmp_path / 'images'}", project=tmp_path, fetched=tmp_path, embeddings=read_as
    )
    assert not lacking_texts(files, load_suite("crime")) and len(lacking_texts(files, load_suite("communion"))) > 10
    found = opened(tmp_path / "images", texts=read_as.texts).images("faces", IMAGES.head(4))
    assert found.surplus == 1 and "4 of 4 stored embeddings are not of unit norm (3 to 3)" in str(found.notes[0])


def changed(at, value):
    vectors = VECTORS.copy()
    vectors[at] = value
    return vectors


@pytest.mark.parametrize(
    ("names", "vectors", "says"),
    [
        ([*PATHS[:4], "z.png"], VECTORS, ["1 of 5 images of `faces` have no stored embedding", "no row of val/e.png"]),
        ([*PATHS[:3], "x/val/c.png", *PATHS[4:]], VECTORS, ["no row of val/d.png"]),
        ([*PATHS[:4], "val/d.png"], VECTORS, ["1 rows of embeddings are of an image", "img_emb_01.npy, row 2, col"]),
        (PATHS, changed(3, np.nan), ["1 of 5 stored embeddings hold NaN or infinity", "img_emb_01.npy, row 1"]),
        (PATHS, changed(slice(1, 3), 0), ["2 of 5 stored embeddings hold zeros alone", "img_emb_00.npy, row 2"]),
        ([*PATHS[:4], ""], VECTORS, ["1 of 2 rows of embeddings have no name", "metadata_01.parquet, row 2, column"]),
        (PATHS, VECTORS[:4], ["1 rows of embeddings or names are missing", "1 rows of embeddings, 2 in column"]),
        (PATHS, VECTORS[:, None], ["another shape or type", "float32 of shape (3, 1, 8)"]),
        (PATHS, np.ones((5, 8), int), ["another shape or type", "int64 of shape (3, 8)"]),
        (PATHS, VECTORS[:, :4], ["images and texts are of different lengths", "4 numbers"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_file_row_and_column_and_counted(tmp_path, names, vectors, says):
    clip_retrieval(tmp_path, names, vectors)
    texts(tmp_path)
    with pytest.raises(EncodingError) as refused:
        opened(tmp_path).images("faces", IMAGES)
    told = re.sub(r"\s+", " ", str(refused.value))
    assert all(part in told for part in says), told


def table(folder, **columns):
    pl.DataFrame(columns).write_parquet(folder / "z.parquet")


def second(folder, array):
    np.save(folder / "img_emb" / "img_emb_01.npy", array)


SECOND = "metadata/metadata_01.parquet"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: (f / SECOND).unlink(), ["no names", "metadata_01.parquet"]),
        (lambda f: pl.DataFrame({"url": PATHS[3:]}).write_parquet(f / SECOND), ["lack `image_path`", "url"]),
        (lambda f: second(f, VECTORS[3:, :4]), ["different lengths", "8, as in img_emb_00.npy"]),
        (lambda f: (f / "img_emb/img_emb_01.npy").write_bytes(b"\x93NUMPY"), ["no npy of numbers"]),
        (
            lambda f: texts(f, [*TEXTS, TEXTS[0]], np.vstack([OF_TEXTS, OF_TEXTS[1]])),
            ["1 rows have another embedding of a text", f"row {len(TEXTS) + 1}"],
        ),
        (lambda f: table(f, image_path=["q"], embedding=[[1.0, None]]), ["1 numbers of embeddings are null", "row 1"]),
        (
            lambda f: table(f, image_path=["q", "r"], embedding=[[1.0], [1.0, 2.0]]),
            ["1 of 2 embeddings are of another length", "row 2, column `embedding`"],
        ),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, spoil, says):
    clip_retrieval(tmp_path, PATHS, VECTORS)
    texts(tmp_path)
    spoil(tmp_path)
    with pytest.raises(EncodingError) as refused:
        opened(tmp_path).images("faces", IMAGES)
    assert all(part in str(refused.value) for part in says), refused.value


def test_settings_of_embeddings_belong_to_their_address():
    entry = {"address": "stored:x", "embeddings": {"texts": "ViT-B-32/openai", "checkpoint": "ViT-L-14/openai"}}
    stored = EncoderEntry.model_validate(entry)
    assert (stored.loaded_address, stored.study_address) == ("ViT-B-32/openai", "ViT-L-14/openai")
    for wrong in (entry | {"address": "local-dir:x"}, entry | {"predictions": {}}):
        with pytest.raises(ValidationError):
            EncoderEntry.model_validate(wrong)


def test_a_text_tower_embeds_any_prompt_beside_stored_images(tmp_path):
    address = f"local-dir:{CHECKPOINTS / 'small-control-3k'}"
    files = checkpoint_files("t", address, project=tmp_path, fetched=tmp_path)
    tower = load_encoder(files, Placement.choose(device="cpu"))
    vectors = RNG.normal(size=(5, tower.width)).astype(np.float32)
    clip_retrieval(tmp_path, PATHS, vectors)
    encoder = opened(tmp_path, texts=address)
    np.testing.assert_array_equal(encoder.embed_texts(["a photo of a cat"]), tower.embed_texts(["a photo of a cat"]))
    np.testing.assert_array_equal(encoder.images("faces", IMAGES).vectors, vectors)
    assert (encoder.family, encoder.logit_scale) == ("stored_images", tower.logit_scale)


def test_classes_are_asked_where_every_text_of_every_template_is_stored(tmp_path):
    suite = zero_shot_suite(["tench", "goldfish"], ZeroShotSettings(templates=("a {}", "the {}")))
    assert suite.embedded == ("a tench", "the tench", "a goldfish", "the goldfish")
    clip_retrieval(tmp_path, PATHS, VECTORS)
    for names, lacking in ((suite.embedded, ()), (suite.embedded[:3], ("the goldfish",))):
        texts(tmp_path, names, OF_TEXTS[: len(names)])
        encoder = opened(tmp_path)
        assert answers(FAMILIES[encoder.family], suite)
        files = checkpoint_files(
            "e", f"stored:{tmp_path}", project=tmp_path, fetched=tmp_path, embeddings=EmbeddingsSettings()
        )
        assert lacking_texts(files, suite) == lacking
    texts(tmp_path, suite.embedded, OF_TEXTS[:4])
    classes = embed_classes(opened(tmp_path), suite, ShardCache(UPath(tmp_path / "cache"))).array
    units = OF_TEXTS[:4] / np.linalg.norm(OF_TEXTS[:4], axis=1, keepdims=True)
    means = units.reshape(2, 2, -1).mean(axis=1)
    np.testing.assert_allclose(classes, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-6)


def test_an_npz_packed_by_another_method_is_refused_before_it_is_unpacked(tmp_path):
    np.savez(tmp_path / "plain.npz", image_path=np.array(PATHS), embedding=np.zeros((len(PATHS), 4)))
    with (
        zipfile.ZipFile(tmp_path / "plain.npz") as plain,
        zipfile.ZipFile(tmp_path / "images.npz", "w", zipfile.ZIP_BZIP2) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(EncodingError, match="another method than deflate"):
        stored_embeddings._opened_npz(tmp_path / "images.npz")


@pytest.mark.parametrize("vectors_too", [False, True])
def test_names_that_take_no_room_are_counted_before_they_are_made(tmp_path, vectors_too):
    header, vectors = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<U0", "fortran_order": False, "shape": (10**12,)})
    np.save(vectors, np.zeros((4, 4)))
    with zipfile.ZipFile(tmp_path / "images.npz", "w") as packed:
        packed.writestr("image_path.npy", header.getvalue())
        packed.writestr("embedding.npy", header.getvalue() if vectors_too else vectors.getvalue())
    why = "<U0 of shape" if vectors_too else "more names than numbers[\\s\\S]*1,000,000,000,000 names, 16 numbers"
    with pytest.raises(EncodingError, match=why):
        stored_embeddings._read(tmp_path / "images.npz", "image_path", EmbeddingsSettings())


def test_an_npz_that_grows_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_embeddings, "_NPZ_FREE_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "images.npz", image_path=np.array(PATHS), embedding=np.zeros((1024, 1024)))
    monkeypatch.setattr(np, "load", None)  # nothing is read
    with pytest.raises(EncodingError, match=r"grows too much[\s\S]*images.npz"):
        stored_embeddings._opened_npz(tmp_path / "images.npz")


def npy_of(descr="<f4", shape=(2, 4), data=b"", header=None):
    """Return an npy whose header says what it likes."""
    said = header or repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said) + 1) + said + b"\n" + data


GOOD = {"embedding": npy_of(data=bytes(32)), "image_path": npy_of("<U1", (2,), bytes(8))}
HOSTILE = {
    "terabytes": npy_of(shape=(10**13, 2)),
    "more than an address": npy_of(shape=(2**80, 2)),
    "nothing, often": npy_of(shape=(2**80, 0)),
    "fewer than none": npy_of(shape=(-5, -2), data=bytes(40)),
    "no numbers": npy_of(shape=(2.5, 2), data=bytes(40)),
    "signs": npy_of(header=b"-" * 9000 + b"1"),
    "brackets": npy_of(header=b"(" * 9000),
    "sums": npy_of(header=b"1+" * 4000 + b"1"),
    "no key": npy_of(header=b"{[]:1}"),
    "objects": npy_of("|O", (2,), b"cos\nsystem\n(S'id'\ntR."),
    "another version": b"\x93NUMPY\x09\x00" + bytes(40),
    "nothing": b"",
}


@pytest.mark.parametrize("array", HOSTILE.values(), ids=HOSTILE)
def test_what_a_header_says_is_refused_before_anything_is_allocated(tmp_path, array):
    for spoilt in GOOD:
        with zipfile.ZipFile(tmp_path / "images.npz", "w") as packed:
            for name, data in (GOOD | {spoilt: array}).items():
                packed.writestr(f"{name}.npy", data)
        with pytest.raises(EncodingError, match=r"images\.npz"):
            stored_embeddings._read(tmp_path / "images.npz", "image_path", EmbeddingsSettings())
    clip_retrieval(tmp_path, PATHS, VECTORS)
    (tmp_path / "img_emb" / "img_emb_01.npy").write_bytes(array)
    with pytest.raises(EncodingError, match=r"img_emb_01\.npy"):
        stored_embeddings._read(tmp_path / "img_emb" / "img_emb_01.npy", "image_path", EmbeddingsSettings())


def test_a_pipe_among_the_parts_is_refused_without_waiting_for_it(tmp_path):
    clip_retrieval(tmp_path, PATHS, VECTORS)
    (tmp_path / "img_emb" / "img_emb_01.npy").unlink()
    os.mkfifo(tmp_path / "img_emb" / "img_emb_01.npy")
    with pytest.raises(EncodingError, match=r"this is no file[\s\S]*img_emb_01\.npy"):
        stored_embeddings.embedding_contents(tmp_path, EmbeddingsSettings())


def test_lists_without_end_are_refused_before_one_is_read(tmp_path, monkeypatch):
    path = tmp_path / "images.parquet"
    wide = [[0.0] * 70_000] * 2
    pl.DataFrame({"image_path": PATHS[:2], "embedding": wide}).write_parquet(path)
    monkeypatch.setattr(stored_embeddings, "whole_columns", None)
    with pytest.raises(EncodingError, match=r"longer than any embedding[\s\S]*140,000 numbers in 2 rows"):
        stored_embeddings._lists(path, "embedding")


def test_names_of_no_letters_and_an_encrypted_npz_are_refused(tmp_path):
    path = tmp_path / "images.npz"
    names = npy_of("<U1", (2,), struct.pack("<II", 0x7FFFFFFF, 0x7FFFFFFF))
    with zipfile.ZipFile(path, "w") as packed:
        for name, data in (GOOD | {"image_path": names}).items():
            packed.writestr(f"{name}.npy", data)
    with pytest.raises(EncodingError, match=r"cannot be read[\s\S]*images\.npz"):
        stored_embeddings._read(path, "image_path", EmbeddingsSettings())
    np.savez(path, image_path=np.array(PATHS), embedding=VECTORS)
    data = bytearray(path.read_bytes())
    for at in (found.start() for found in re.finditer(rb"PK\x01\x02", bytes(data))):
        data[at + 8] |= 1  # the flag of encryption
    path.write_bytes(data)
    with pytest.raises(EncodingError, match=r"cannot be read[\s\S]*images\.npz"):
        stored_embeddings._read(path, "image_path", EmbeddingsSettings())
