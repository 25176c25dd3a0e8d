"""Image-text pairs: what is trained on them, that nobody is labelled there, and what recall a mitigation costs."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from small_encoders import Remembering
from test_prompt_array import QUICK, log_sum_exp, rows_of

from plumbline.catalog.schema import BEFORE
from plumbline.catalog.word_lists import load_sensitive_queries
from plumbline.errors import MetricError
from plumbline.metrics.family import MetricSettings
from plumbline.mitigations.fitting import judge_retrieval
from plumbline.mitigations.prompt_array import LearnedTokens, PromptArraySettings
from plumbline.mitigations.registry import SETTINGS
from plumbline.mitigations.retrieval import Places, Retrieval, chosen_images, places, retrieval_rows
from plumbline.mitigations.saner import SanerSettings, names_person
from plumbline.mitigations.text_mitigations import FitContext, FittedMitigation
from plumbline.mitigations.training_rows import ImageTextPairs, captioned_images, image_text_pairs

pytestmark = pytest.mark.usefixtures("one_thread")
CAPTIONS = ("a man riding a horse", "someone on a horse", "a table", "a woman cooking", "a surfer", "a woman cooking")
IMAGE_OF = np.array([0, 0, 1, 2, 3, 4])


def pairs_of(encoder, *, captions=CAPTIONS, image_of=IMAGE_OF):
    images = np.random.default_rng(0).normal(size=(image_of.max() + 1, encoder.width)).astype(np.float32)
    ids = tuple(f"pair-{i}" for i in range(len(images)))
    return ImageTextPairs(images, ids, tuple(captions), image_of)


def fit(encoder, settings, pairs, *, rows=None, asked=None):
    def rows_for(*given, **_):
        if rows is None:
            raise AssertionError("labelled rows were asked for")
        return rows

    def pairs_for(dataset):
        (asked if asked is not None else []).append(dataset)
        return pairs

    return settings.fit(FitContext(encoder, encoder.embed_texts, rows_for, 1, pairs=pairs_for))


# --- What is trained on.


def test_saner_on_pairs_asks_for_no_labels_and_reads_captions_of_persons_alone(planted):
    settings, asked = SanerSettings(epochs=1, batch=2, width=8, neutral_captions=False, pairs="coco"), []
    fitted = fit(Remembering(planted), settings, pairs_of(planted), asked=asked)
    assert asked == ["coco"]
    # The table is no person; every other image counts once.
    assert fitted.train_ids == ("pair-0", "pair-2", "pair-3", "pair-4")
    assert fitted.settings["pairs"] == "coco" and np.isfinite(fitted.losses["contrastive"]).all()
    with pytest.raises(MetricError, match="no caption names a person"):
        fit(Remembering(planted), settings, pairs_of(planted).taken(np.array([2])))


@pytest.mark.parametrize(
    ("text", "person"),
    [("A man rides a horse.", True), ("a surfer on a wave", True), ("an elderly couple", True), ("a table", False)],
)
def test_captions_of_persons_are_told_by_their_words(text, person):
    assert names_person(text) == person


def test_the_image_text_term_of_a_prompt_array_is_over_the_pairs(planted):
    rows, queries = rows_of(planted), load_sensitive_queries().texts
    settings = QUICK.model_copy(update={"alternate": 1, "contrastive": 0.3, "pairs": "laion"})
    paired = pairs_of(planted).as_many_as(len(rows.labels), seed=3)
    assert len(paired.captions) == len(rows.labels) and set(paired.captions) == set(CAPTIONS)
    learned = LearnedTokens(planted, rows, settings, queries, seed=1, pairs=paired)
    without = LearnedTokens(planted, rows, settings, queries, seed=1)
    batch = np.arange(4, 20)
    learned.step(batch, 0), without.step(batch, 0)
    tokens = learned.tokens.values()["tokens"]
    losses, others = learned.step(batch, 1), without.step(batch, 1)
    with torch.no_grad():
        texts = planted.differentiable_texts([paired.captions[i] for i in batch], torch.from_numpy(tokens))
    features = texts.double().numpy()
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    images = paired.images[paired.image_of[batch]].astype(float)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    logits = planted.logit_scale * images @ features.T
    contrastive = np.mean([log_sum_exp(m[i]) - m[i, i] for m in (logits, logits.T) for i in range(16)])
    assert losses["contrastive"] == pytest.approx(contrastive, rel=1e-4)
    # The adversary sees the faces as before.
    assert losses["guessing"] == others["guessing"] and losses["contrastive"] != others["contrastive"]


def test_a_prompt_array_is_trained_on_faces_and_pairs_and_says_so(planted):
    rows, settings = rows_of(planted), QUICK.model_copy(update={"epochs": 1, "pairs": "laion"})
    fitted = fit(planted, settings, pairs_of(planted), rows=rows)
    assert fitted.train_ids[: len(rows.image_ids)] == rows.image_ids
    assert set(fitted.train_ids[len(rows.image_ids) :]) == {f"pair-{i}" for i in range(5)}
    other = pairs_of(planted, captions=("a dog", *CAPTIONS[1:]))
    assert fit(planted, settings, other, rows=rows).fitted_on != fitted.fitted_on


def test_a_caption_that_leaves_no_room_is_cut_at_its_end(planted):
    long = " ".join(["a man on a horse"] * 40)
    pairs = pairs_of(planted, captions=(long, *CAPTIONS[1:]))
    rows = rows_of(planted)
    learned = LearnedTokens(
        planted, rows, QUICK, load_sensitive_queries().texts, seed=1, pairs=pairs.as_many_as(48, seed=0)
    )
    cut = {text for text in learned._captions if text not in CAPTIONS}
    assert len(cut) == 1 and long.startswith(cut.pop())


@pytest.mark.parametrize("method", ["prompt_array", "saner"])
def test_without_pairs_settings_are_recorded_as_before_the_key_existed(method):
    plain = SETTINGS[method](method=method)
    assert "pairs" not in plain.model_dump(mode="json")
    named = SETTINGS[method](method=method, pairs="coco")
    assert named.model_dump(mode="json")["pairs"] == "coco" and named.datasets == ("coco",)
    assert SETTINGS[method].model_validate(named.model_dump(mode="json")) == named


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "saner", "pairs": "coco", "fit_on": "fairface"}, "`fit_on` or `pairs`"),
        ({"method": "prompt_array", "pairs": "laion", "variant": "released"}, "adversarial alone"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        SETTINGS[str(settings["method"])].model_validate(settings)


def test_what_each_is_trained_on_is_said_in_words():
    assert "image-text pairs of laion" in PromptArraySettings(pairs="laion", fit_on="fairface").trained_on
    assert SanerSettings(pairs="coco").trained_on == "captions of coco that name a person; no labels"


RECORDS = pl.DataFrame(
    {
        "image_id": ["a", "a", "b", "c", "d"],
        "split": ["train", "train", "val", "val", "train"],
        "caption": ["one", "two", "three", "four", None],
    }
)


def test_pairs_are_of_the_training_split_or_of_the_rest_and_an_image_with_two_captions_is_one_image():
    assert captioned_images(RECORDS, training=True)["caption"].to_list() == ["one", "two"]
    assert captioned_images(RECORDS, training=False)["caption"].to_list() == ["three", "four"]
    whole = RECORDS.with_columns(split=pl.lit(None, pl.String))
    assert captioned_images(whole, training=True).height == captioned_images(whole, training=False).height == 4
    pairs = image_text_pairs(captioned_images(whole, training=True), np.eye(3, dtype=np.float32))
    assert pairs.image_ids == ("a", "b", "c") and pairs.image_of.tolist() == [0, 0, 1, 2]
    np.testing.assert_array_equal(pairs.rows().images, np.eye(3)[[0, 0, 1, 2]])
    assert len(chosen_images(captioned_images(whole, training=True), most=1, seed=5)["image_id"].unique()) == 1
    for records, words in ((RECORDS[4:], "no captions"), (RECORDS[2:4], "no image-text pairs to train on")):
        with pytest.raises(MetricError, match=words):
            captioned_images(records, training=True)


# --- What it costs.


def slow_places(pairs, texts, features):
    """Return the places by sorting, query by query."""
    images, captions = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (pairs.images, features))
    cosines, belong = images @ captions.T, np.zeros((len(images), len(texts)), bool)
    for caption, image in zip(pairs.captions, pairs.image_of):
        belong[image, texts.index(caption)] = True

    def place(scores, own):
        return next(at for at, item in enumerate(np.argsort(-scores, kind="stable")) if own[item])

    by_caption = [place(*columns) for columns in zip(cosines.T, belong.T)]
    return [place(*rows) for rows in zip(cosines, belong)], [by_caption[texts.index(c)] for c in pairs.captions]


@pytest.mark.parametrize("ties", [False, True])
def test_places_are_those_of_a_sorted_list_and_a_shared_caption_finds_any_of_its_images(ties):
    rng = np.random.default_rng(4)
    image_of = np.sort(rng.integers(0, 30, 80))
    image_of = np.unique(image_of, return_inverse=True)[1]
    captions = tuple(f"caption {k}" for k in rng.integers(0, 50, 80))
    images = rng.normal(size=(image_of.max() + 1, 6)).astype(np.float32)
    pairs = ImageTextPairs(images, tuple(map(str, range(len(images)))), captions, image_of)
    texts = list(dict.fromkeys(captions))
    features = rng.normal(size=(len(texts), 6)).astype(np.float32)
    if ties:
        features[1::2], images[1::2] = features[0], images[0]
    found = places(pairs, texts, features)
    by_image, by_text = slow_places(pairs, texts, features)
    assert found.image_to_text.tolist() == by_image and found.text_to_image.tolist() == by_text


def test_a_mitigation_is_not_judged_by_images_that_it_was_trained_on(monkeypatch, planted):
    monkeypatch.setattr("plumbline.mitigations.fitting.apply_text_mitigation", lambda f, e, texts, x: x[::-1].copy())
    fits = {name: FittedMitigation({"method": "saner"}, {}, "", train_ids=ids) for name, ids in FITS.items()}
    context = FitContext(SimpleNamespace(), planted.embed_texts, rows=None, seed=0)
    judged = judge_retrieval(fits, context, pairs_of(planted))
    assert set(judged.after) == {"elsewhere"} and judged.absent == {"here": "it was trained on 1 of the 5 images"}
    assert not np.array_equal(judged.after["elsewhere"].image_to_text, judged.before.image_to_text)


FITS = {"elsewhere": ("x",), "here": ("x", "pair-3")}


def test_rows_hold_recall_before_and_after_and_a_paired_gain_with_whole_images_drawn():
    n, rng = 200, np.random.default_rng(0)
    image_of = np.repeat(np.arange(n), 3)

    def state(worse):
        found = rng.integers(0, 10, n) + worse * rng.integers(0, 10, n)
        return Places(found.astype(np.int32), np.repeat(found, 3).astype(np.int32), image_of)

    before, after = state(0), state(1)
    retrieval = Retrieval(before, {"saner": after})
    settings = MetricSettings(seed=1, resamples=200, permutations=200)
    twice = [("coco", retrieval), ("coco", Retrieval(before, {"array": before}))]
    rows = retrieval_rows(twice, model="clip", dataset="faces", k=(1, 5), settings=settings)
    assert rows.filter(condition=BEFORE).height == 4, "before once, whatever the methods"
    recall = rows.filter(metric="retrieval_recall", condition="saner", k=5)
    row, alone = (recall.filter(definition=name).row(0, named=True) for name in ("text_to_image", "image_to_text"))
    share = float((after.text_to_image < 5).mean())
    assert row["value"] == pytest.approx(share) and row["n"] == n and row["event"] == "coco"
    # Captions of one image agree here: 600 queries say no more than 200.
    alone = rows.filter(metric="retrieval_recall", condition="saner", definition="image_to_text", k=5).row(
        0, named=True
    )
    assert row["ci_high"] - row["ci_low"] == pytest.approx(alone["ci_high"] - alone["ci_low"], rel=0.05)
    gains = rows.filter(metric="retrieval_recall_gain", definition="text_to_image", k=5)
    gain = gains.filter(condition="saner").row(0, named=True)
    assert gain["value"] == pytest.approx(share - (before.text_to_image < 5).mean())
    assert gain["ci_low"] < gain["value"] < gain["ci_high"] < 0 and gain["p"] < 0.011
    same = gains.filter(condition="array").row(0, named=True)
    assert same["value"] == 0 and same["p"] == 1
