"""Mitigated cells: nothing changed gives the cell itself, and a changed text changes its own column."""

from dataclasses import replace

import numpy as np
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.errors import MetricError
from plumbline.metrics import Cell, SuiteLogits
from plumbline.metrics.paired.mitigations import mitigated_cell

SUITES = ("crime", "communion", "trident")
SCALE = 50.0


def embedded(make_cell, scaled=False, n=60, seed=3):
    """Return a cell with the embeddings behind it, as `assets.cells` builds its logits."""
    rng = np.random.default_rng(seed)
    suites = [load_suite(name, classes="fairface" if name == "trident" else None) for name in SUITES]
    texts = list(dict.fromkeys(text for suite in suites for text in suite.texts))
    images, features = (rng.normal(size=(k, 12)).astype(np.float32) for k in (n, len(texts)))
    raw, image_norm, text_norm = (images @ features.T, *(np.linalg.norm(each, axis=1) for each in (images, features)))
    logits = {}
    for suite in suites:
        chosen = [texts.index(text) for text in suite.texts]
        cosine = raw[:, chosen] / image_norm[:, None] / text_norm[chosen][None, :]
        logits[suite.id] = SuiteLogits(suite, np.float32(SCALE) * cosine if scaled else raw[:, chosen], cosine, SCALE)
    cell = replace(make_cell(n=n, suites=()), logits=logits, keep={"crime": np.arange(n) % 3 > 0})
    return cell, texts, features, images


def after(cell: Cell, texts, features, images, *, scaled=False, keep=None):
    kept = np.ones(cell.records.height, dtype=bool) if keep is None else keep
    return mitigated_cell(cell, texts, features, images, logit_scale=SCALE, scaled=scaled, keep=kept)


@pytest.mark.parametrize("scaled", [False, True])
def test_features_that_nothing_changed_give_the_cell_itself(make_cell, scaled):
    cell, texts, features, images = embedded(make_cell, scaled)
    same = after(cell, texts, features, images, scaled=scaled)
    assert list(same.logits) == list(SUITES) and same.records is cell.records
    for name, own in cell.logits.items():
        found = same.logits[name]
        assert found.suite is own.suite and found.logit_scale == SCALE
        for one, other in ((found.logits[:], own.logits), (found.cosine[:], own.cosine)):
            assert one.dtype == np.float32
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(same.rows(name), cell.rows(name))


def test_the_order_of_the_texts_does_not_matter(make_cell):
    cell, texts, features, images = embedded(make_cell)
    back = np.arange(len(texts))[::-1]
    one = after(cell, texts, features, images)
    other = after(cell, [texts[i] for i in back], features[back], images)
    for name in SUITES:
        np.testing.assert_array_equal(one.logits[name].logits[:], other.logits[name].logits[:])


def test_a_changed_text_changes_its_columns_alone(make_cell):
    cell, texts, features, images = embedded(make_cell)
    word = "a photo of a thief"
    turned = features.copy()
    turned[texts.index(word)] *= -1
    found = after(cell, texts, turned, images)
    for name in ("crime", "trident"):
        was, now = cell.logits[name], found.logits[name]
        column = was.suite.texts.index(word)
        np.testing.assert_allclose(now.cosine[:][:, column], -was.cosine[:, column], rtol=1e-5, atol=1e-6)
        others = np.arange(len(was.suite.texts)) != column
        np.testing.assert_allclose(now.logits[:][:, others], was.logits[:, others], rtol=1e-5, atol=1e-6)


def test_suites_without_all_their_texts_are_left_out_and_rows_are_narrowed(make_cell):
    cell, texts, features, images = embedded(make_cell)
    fewer = [i for i, text in enumerate(texts) if text in load_suite("crime").texts]
    keep = np.arange(60) < 30
    found = after(cell, [texts[i] for i in fewer], features[fewer], images, keep=keep)
    assert list(found.logits) == ["crime"] and found.images is None
    np.testing.assert_array_equal(found.rows("crime"), (np.arange(60) % 3 > 0) & keep)


def test_what_does_not_belong_together_is_refused(make_cell):
    cell, texts, features, images = embedded(make_cell)
    with pytest.raises(MetricError, match="one feature for each text"):
        after(cell, texts[:-1], features, images)
    with pytest.raises(MetricError, match="one feature for each text"):
        after(cell, texts, features, images[:-1])
    with pytest.raises(MetricError, match="one feature for each text"):
        after(cell, [*texts[:-1], texts[0]], features, images)
    for broken in (0.0, np.nan):
        lost = features.copy()
        lost[3] = broken
        with pytest.raises(MetricError, match="zero or not finite"):
            after(cell, texts, lost, images)
