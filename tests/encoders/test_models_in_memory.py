"""Models that a program holds embed as the adapters of the pipeline do, and are left as they were."""

import numpy as np
import pytest
import torch
from every_encoder import batch_of

import plumbline
from plumbline.encoders.families import FAMILIES
from plumbline.errors import EncodingError, ImageRejected
from plumbline.notebook.inputs import as_vectors, embed_pictures, embedder_of

TEXTS = ["a photo of a person", "a thief"]
DUAL = [
    name for name, family in FAMILIES.items() if family.logit in ("dot", "scaled_cosine") and "Towers" in family.adapter
]


def held(encoder):
    """Return model, processor and tokenizer of a loaded adapter, as a program has them."""
    return encoder._model, getattr(encoder._images, "_whole", None), encoder._tokenizer


@pytest.mark.parametrize("case", DUAL)
def test_transformers_models_embed_as_their_adapters(case, encoders, pictures):
    encoder = encoders[case]
    embedder = embedder_of(*held(encoder))
    made = embed_pictures(embedder, pictures, batch=2)
    expected = np.concatenate([encoder.embed_images(batch_of(encoder, [picture])) for picture in pictures])
    np.testing.assert_allclose(made.vectors, expected, atol=2e-4 * np.abs(expected).max())
    texts = as_vectors(embedder.texts(TEXTS), where="texts")
    np.testing.assert_allclose(texts, encoder.embed_texts(TEXTS), rtol=1e-4, atol=1e-5)
    assert embedder.logit == FAMILIES[encoder.family].logit
    assert embedder.logit_scale == pytest.approx(encoder.logit_scale)
    assert len(set(made.ids)) == len(pictures)


def test_open_clip_models_embed_as_their_adapter_and_keep_their_mode(encoders, pictures):
    encoder = encoders["open_clip"]
    model = encoder._model

    def preprocess(picture):
        return encoder._normalisation(encoder.prepare(picture)[None], device="cpu")[0]

    embedder = embedder_of(model, preprocess, encoder._tokenizer)
    first, second = [*model.modules()][1:3]
    model.train()
    second.eval()
    try:
        made = embed_pictures(embedder, pictures, batch=3)
        assert model.training and not second.training and first.training
    finally:
        model.eval()
    np.testing.assert_allclose(made.vectors, encoder.embed_images(batch_of(encoder, pictures)), rtol=1e-4, atol=1e-5)
    assert embedder.logit == "dot" and embedder.logit_scale == pytest.approx(encoder.logit_scale)


def test_paths_and_pictures_give_one_audit(tmp_path, pictures):
    """A lossless file decodes to the picture; ids are those of bytes, so that only they differ."""

    def embed_images(batch):
        return torch.tensor([[np.asarray(picture).mean(), 100.0] for picture in batch])

    def embed_texts(texts):
        return [[len(text), 40.0] for text in texts]

    paths = [tmp_path / f"{i}.png" for i in range(len(pictures))]
    for path, picture in zip(paths, pictures):
        picture.save(path)
    ids = [str(i) for i in range(len(pictures))]
    labels = {"gender": ["man", "woman", "man", "woman", "man"], "image_id": ids}
    asked = {"labels": labels, "suites": ["crime"], "resamples": 100, "permutations": 100, "batch": 2}
    tables = [plumbline.audit((embed_images, embed_texts), images=of, **asked).table for of in (paths, pictures)]
    assert (
        tables[0]
        .drop("cell_id", "audit_id", "dataset_digest")
        .equals(tables[1].drop("cell_id", "audit_id", "dataset_digest"))
    )


@pytest.mark.parametrize(
    ("model", "images", "error", "said"),
    [
        (object(), [], EncodingError, r"no model[\s\S]*object[\s\S]*open_clip"),
        ((len, len), [3], EncodingError, r"images\[0\][\s\S]*int[\s\S]*a path, or a PIL image"),
        ((len, len), ["nothing.png"], ImageRejected, "nothing.png"),
        ((lambda batch: [[float("nan")]] * len(batch), len), "pictures", EncodingError, r"NaN[\s\S]*images\[0:5\]"),
        ((lambda batch: [[1.0]], len), "pictures", EncodingError, r"shape \(1, 1\)[\s\S]*\(5, d\)"),
    ],
)
def test_what_cannot_be_embedded_is_refused_with_its_place(model, images, error, said, pictures):
    with pytest.raises(error, match=said):
        plumbline.audit(model, images=pictures if images == "pictures" else images, suites=["crime"])


def test_a_missing_part_is_named(encoders):
    model, processor, _ = held(encoders["clip"])
    with pytest.raises(EncodingError, match="needs its preprocess"):
        embedder_of(model)
    long = embedder_of(model, processor, encoders["clip"]._tokenizer)
    with pytest.raises(EncodingError, match=r"longer than this model takes[\s\S]*at most"):
        long.texts(["person " * 500])
