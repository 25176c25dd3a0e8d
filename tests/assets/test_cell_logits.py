"""What is stored of a cell becomes logits as its encoder's family gives them, and cosines where there are any."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from assets import cells
from assets.cells import StoredCell
from plumbline.catalog.suites import load_suite
from plumbline.encoders.families import FAMILIES, Capability, answers, require_suites
from plumbline.errors import ConfigError, StorageError
from plumbline.metrics.cell import build_cell

SUITE = load_suite("gender_labels")
IMAGES = np.array([[3.0, 4.0], [1.0, 0.0]], dtype=np.float32)
TEXTS = np.array([[0.0, 2.0], [1.0, 1.0], [1.0, 0.0]], dtype=np.float32)
COSINE = np.array([[0.6, 0.8], [1.0, 0.0]])


def read(name, scale=10.0):
    family = FAMILIES[name]
    cell = build_cell(
        model="m",
        dataset="d",
        records=pl.DataFrame({"image_id": ["a", "b"]}),
        arrays={
            "raw": IMAGES @ TEXTS.T,
            "image_norm": np.linalg.norm(IMAGES, axis=1),
            "text_norm": np.linalg.norm(TEXTS, axis=1),
        },
        texts=[SUITE.texts[1], "another text", SUITE.texts[0]],
        suites=[SUITE],
        filters={},
        shared_space=Capability.EMBED_IMAGES in family.offers,
        scaled=family.logit == "scaled_cosine",
        logit_scale=scale,
    )
    return cell.logits[SUITE.id]


@pytest.mark.parametrize("family", ["open_clip", "clip"])
def test_clip_ranks_raw_products_and_has_cosines(family):
    logits = read(family)
    np.testing.assert_array_equal(logits.logits[:], [[3.0, 8.0], [1.0, 0.0]])
    np.testing.assert_allclose(logits.cosine[:], COSINE, rtol=1e-6)
    assert logits.scores is logits.cosine and logits.logit_scale == 10.0


def test_align_ranks_its_scaled_cosines():
    logits = read("align")
    np.testing.assert_allclose(logits.logits[:], 10 * COSINE, rtol=1e-6)
    np.testing.assert_allclose(logits.cosine[:], COSINE, rtol=1e-6)


@pytest.mark.parametrize("family", ["owlv2", "bridgetower"])
def test_families_without_a_shared_space_have_logits_only(family):
    logits = read(family)
    np.testing.assert_array_equal(logits.logits[:], [[3.0, 8.0], [1.0, 0.0]])
    assert logits.cosine is None and logits.scores is logits.logits


def test_by_default_a_family_is_asked_what_it_answers():
    suites = [load_suite(name) for name in ("perception", "templates", "pata_captions", "crime")]
    answered = {f.name: [s.id for s in suites if answers(f, s)] for f in FAMILIES.values()}
    assert answered["align"] == [suite.id for suite in suites]
    assert answered["bridgetower"] == answered["owlv2"] == ["pata_captions", "crime"]


@pytest.mark.parametrize("family", ["owlv2", "bridgetower"])
def test_a_labeller_must_embed(family):
    require_suites(family, [load_suite("crime"), load_suite("trident", classes="utkface")])
    with pytest.raises(ConfigError, match=r"automatic gender label needs embed_images, embed_texts[\s\S]*CLIP"):
        require_suites(family, [SUITE])


@pytest.mark.parametrize("family", ["owlv2", "bridgetower"])
def test_a_control_without_a_shared_space_has_no_spread_of_images(family, monkeypatch):
    """Only embeddings have cosines between images: what such a family stores of a dataset is not asked for."""
    monkeypatch.setattr(cells, "declaration_of", lambda workspace, dataset: SimpleNamespace(base_attribute=None))
    stored = SimpleNamespace(details={"family": family, "images": "a digest of pairs"})
    cell = StoredCell(workspace=None, dataset="d", model="m", records=None, extended=None, logits=stored)
    assert cell._control_images() is None


def test_stored_logits_that_lack_a_prompt_or_a_row_are_refused():
    arrays = {"raw": IMAGES @ TEXTS.T}
    known = {"model": "m", "dataset": "d", "filters": {}, "shared_space": False, "scaled": False, "logit_scale": 1.0}
    two, three = (pl.DataFrame({"image_id": list("abc")[:n]}) for n in (2, 3))
    with pytest.raises(StorageError, match=r"lack prompts of the suite `gender_labels`[\s\S]*d\|m"):
        build_cell(**known, records=two, arrays=arrays, texts=["a", "b", "c"], suites=[SUITE])
    with pytest.raises(StorageError, match=r"differ in length[\s\S]*2 rows of logits[\s\S]*3 records"):
        build_cell(**known, records=three, arrays=arrays, texts=["a", "b", "c"], suites=[])
