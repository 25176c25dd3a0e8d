"""Audits in memory give the numbers of the pipeline, of whatever a program holds, and load no more than they need."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import plumbline
from plumbline.catalog.schema import LINEAGE_COLUMNS
from plumbline.catalog.suites import load_suite
from plumbline.datasets.extended import extend_records
from plumbline.datasets.records import RECORD_SCHEMA
from plumbline.errors import ConfigError, DatasetError, EncodingError, MetricError, PlumblineError, StorageError
from plumbline.metrics.cell import build_cell, text_products, texts_of
from plumbline.metrics.family import family_descriptions, family_rows, with_lineage
from plumbline.metrics.registry import FAMILIES, TEXT_SPACE, metric_table
from plumbline.metrics.text_space import text_space_rows
from plumbline.storage.files import arrays_bytes, arrays_from_bytes

N, D = 240, 16
QUICK = {"resamples": 100, "permutations": 100, "min_group": 5}
SETTINGS = plumbline.MetricSettings(seed=7, **QUICK)
SUITES = [
    load_suite(name, classes="fairface" if name.startswith("trident") else None)
    for name in plumbline.suite_names()
    if name not in ("gender_labels", "agency_photo", "communion_photo", "crime_words", "crime_pooled")
]


@pytest.fixture(scope="module")
def faces():
    """Return records with every kind of label, and vectors of them."""
    rng = np.random.default_rng(3)
    races = load_suite("trident", classes="fairface").class_labels
    records = pl.DataFrame(
        {
            "image_id": [f"{i * 7919 % N:04d}" for i in range(N)],
            "gender": [None if i % 29 == 0 else ("man", "woman")[i % 2] for i in range(N)],
            "race": [races[i] for i in rng.integers(0, len(races), N)],
            "scene": [("hospital", "office")[i // 3 % 2] for i in range(N)],
            "set_id": [f"seed{i // 8}" for i in range(N)],
            "dimension": [("lighting", "pose")[i // 4 % 2] for i in range(N)],
            "level": [str(i % 4) for i in range(N)],
        }
    )
    lacking = [pl.lit(None, kind).alias(name) for name, kind in RECORD_SCHEMA.items() if name not in records.columns]
    man = rng.random(N)
    extended = extend_records(
        records.with_columns(lacking).select(list(RECORD_SCHEMA)), np.stack([man, 1 - man], axis=1), classes="race"
    )
    return extended, rng.normal(size=(N, D)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(4)
    return {text: rng.normal(size=D).astype(np.float32) for text in texts_of(SUITES)}


@pytest.fixture(scope="module")
def found(faces, vectors):
    return plumbline.audit_features(
        faces[1], text_features=vectors, labels=faces[0], suites=SUITES, logit_scale=50.0, seed=7, min_shown=1, **QUICK
    )


@pytest.fixture(scope="module")
def stored(faces, vectors):
    """Return the cell as the pipeline reads it: from bytes of arrays, family by family."""
    owners = texts_of(SUITES)
    texts = np.stack([vectors[text] for text in owners])
    return build_cell(
        model="model",
        dataset="images",
        records=faces[0],
        arrays=arrays_from_bytes(arrays_bytes(text_products(faces[1], texts, list(owners.values())))),
        texts=list(owners),
        suites=SUITES,
        filters={},
        shared_space=True,
        scaled=False,
        logit_scale=50.0,
    )


@pytest.fixture(scope="module")
def expected(stored, vectors):
    """Return the metric table as the pipeline joins it."""
    frames = [family_rows(family, stored, settings=SETTINGS) for family in FAMILIES.values()]
    frames.append(text_space_rows("model", SUITES, vectors, settings=SETTINGS))
    return metric_table([with_lineage(frame) for frame in frames], audit_id="one", permutations=SETTINGS.permutations)


# The classes of utility are those of a labelled folder: no prompts of a suite. Own metrics: an audit file names them.
@pytest.mark.parametrize("family", [*sorted(FAMILIES.keys() - {"utility_metrics", "own_metrics"}), TEXT_SPACE])
def test_every_family_gives_the_numbers_of_the_pipeline(family, expected, found):
    of_family = pl.col("metric").is_in([traits.name for traits in family_descriptions()[family].metrics])
    rows, given = (table.filter(of_family) for table in (expected, found.table))
    assert rows.height
    for name in rows.drop(*LINEAGE_COLUMNS).columns:
        if rows[name].dtype == pl.Float64:
            a, b = (each[name].fill_null(-9).to_numpy() for each in (rows, given))
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12, err_msg=name)
        else:
            assert rows[name].equals(given[name]), name


def small(images, texts, labels, **options):
    asked = {"suites": ["crime"], "resamples": 100, "permutations": 100, "seed": 1} | options
    return plumbline.audit_features(images, text_features=texts, labels=labels, **asked).table


def test_whatever_holds_labels_and_vectors_gives_the_same(faces, vectors):
    records, images = faces
    labels = records.select("gender", "race")
    texts = plumbline.prompts(["crime"])
    expected = small(images, vectors, labels)
    given = [
        (images, lambda wanted: [vectors[text] for text in wanted], labels.to_pandas()),
        (torch.tensor(images, requires_grad=True), torch.tensor(np.stack([vectors[t] for t in texts])), labels.lazy()),
        (images.tolist(), pd.DataFrame([vectors[t] for t in texts]), labels.to_dict(as_series=False)),
        (pd.DataFrame(images), vectors, labels.to_dicts()),
    ]
    for each in given:
        assert small(*each).equals(expected), type(each[2])
    order = np.random.default_rng(1).permutation(N)
    shuffled = small(images[order], vectors, labels[order]).drop("cell_id", "audit_id", "dataset_digest")
    assert shuffled.equals(expected.drop("cell_id", "audit_id", "dataset_digest")), "the order of the images"
    drawn = [small(*given[0], seed=np.random.default_rng(5)) for _ in range(2)]
    assert drawn[0].equals(drawn[1]) and not drawn[0].equals(expected)


def test_labels_are_texts_numbers_among_them_and_may_be_missing(faces, vectors):
    images = faces[1]
    ages = pd.DataFrame({"age_group": [30.0, 40.0, None, 30.0] * (N // 4)})
    groups = small(images, vectors, ages).filter(metric="outcome_proportion", event="crime")
    assert groups.select("group", "n").rows() == [("30", N // 2), ("40", N // 4)]


def test_a_missing_text_is_no_group_however_the_labels_are_held(faces, vectors):
    texts = ["man", "woman", "man", None] * (N // 4)
    column = pd.Series([np.nan if text is None else text for text in texts])
    held = {
        "frame": pd.DataFrame({"gender": column}),
        "columns": {"gender": column},
        "objects": {"gender": column.astype(object).to_numpy()},
        "pandas' texts": {"gender": column.astype("string")},
        "categories": {"gender": column.astype("category")},
        "records": pd.DataFrame({"gender": column}).to_dict("records"),
        "lists": pd.DataFrame({"gender": column}).to_dict("list"),
        "none": {"gender": texts},
    }
    for name, labels in held.items():
        rates = small(faces[1], vectors, labels).filter(metric="outcome_proportion", event="crime", attribute="gender")
        assert rates.select("group", "n").sort("group").rows() == [("man", N // 2), ("woman", N // 4)], name


def test_tensors_and_numbers_of_any_kind_are_the_groups_they_are(faces, vectors):
    """polars makes nothing of a list of tensors that are no whole numbers, once it has met whole ones."""
    site, level = np.arange(N) % 2, (np.arange(N) % 3) / 2
    expected = small(faces[1], vectors, {"site": site, "level": level}, attributes=["site", "level"])
    of_tensors = {"site": torch.tensor(site), "level": torch.tensor(level).float()}
    rows = [dict(zip(of_tensors, row)) for row in zip(*of_tensors.values())]
    for labels in (of_tensors, rows, {name: list(column) for name, column in of_tensors.items()}):
        assert small(faces[1], vectors, labels, attributes=["site", "level"]).equals(expected)
    masked = {"site": np.ma.array(site, mask=np.arange(N) < 30), "level": level}
    rates = small(faces[1], vectors, masked, attributes=["site"]).filter(metric="outcome_proportion", event="crime")
    assert rates.filter(attribute="site")["n"].to_list() == [N // 2 - 15] * 2
    wide = 2**60 + site.astype(np.int64)
    rates = small(faces[1], vectors, {"level": level, "site": torch.tensor(wide)}, attributes=["site"])
    assert rates.filter(metric="outcome_proportion", event="crime", attribute="site")["group"].n_unique() == 2
    for lost in (np.zeros((N, 1)), [[1]] * N, pd.cut(pd.Series(np.arange(N)), [-1, 10, 999])):
        with pytest.raises(DatasetError, match=r"a column of the labels cannot be read[\s\S]*column `site`"):
            small(faces[1], vectors, {"site": lost}, attributes=["site"])


def test_any_column_may_define_groups_and_small_ones_are_not_shown(faces, vectors):
    team = ["law"] * 111 + ["it"] * 120 + ["porter"] * 6 + ["board"] * 3
    labels = {"gender": (["woman", "man", "non-binary"] * 80), "team": team, "file": [str(i) for i in range(N)]}
    asked = {"attributes": ["team"], "crosses": [("team", "gender")]}
    rows = small(faces[1], vectors, labels, **asked).filter(metric="outcome_proportion", event="crime")
    by = {key[0]: set(of["group"]) for key, of in rows.group_by("attribute")}
    assert set(by) == {"gender", "team", "team × gender"}, "a file name is no group"
    assert by["gender"] == {"man", "woman", "non-binary"} and "law_non-binary" in by["team × gender"]
    assert by["team"] == {"law", "it"}, "of the board alone a total less the others would tell"
    assert rows.filter(pl.col("n") < 5).is_empty()
    shown = small(faces[1], vectors, labels, **asked, min_shown=1).filter(group="board", metric="outcome_proportion")
    assert shown["n"].unique().to_list() == [3]


def test_a_control_has_no_labels(faces, vectors):
    table = small(faces[1], vectors, None, suites=["crime", "templates"], logit_scale=10.0)
    assert {"harm_rate", "intra_set_cosine"} <= set(table["metric"])
    assert not table.filter(metric="outcome_proportion").height


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"labels": {"gender": ["man"]}}, DatasetError, "1 rows of labels, 240 images"),
        ({"labels": {"sex": ["man"] * N}}, DatasetError, r"sex[\s\S]*gender, race[\s\S]*rename"),
        ({"labels": 3}, DatasetError, "must be a table"),
        ({"image_features": np.ones(3)}, EncodingError, r"shape \(3,\)"),
        ({"image_features": np.zeros((N, D))}, EncodingError, "zero norm[\\s\\S]*row 0, 1, 2"),
        ({"image_features": [["a"]]}, EncodingError, "must be numbers"),
        ({"text_features": {}}, EncodingError, r"21 of 21 texts[\s\S]*a photo of a white man"),
        ({"text_features": np.ones((4, D))}, EncodingError, r"\(4, 16\)[\s\S]*\(21, d\)"),
        ({"text_features": np.ones((21, 4))}, EncodingError, "4 numbers a text, 16 an image"),
        ({"attributes": ["team"]}, DatasetError, "team[\\s\\S]*gender"),
        ({"crosses": [("gender", "race")]}, ConfigError, "race[\\s\\S]*gender"),
        ({"suites": ["crim"]}, ConfigError, "no such prompt suite"),
        ({"suites": ["trident"], "labels": {"race": ["Black"] * N}}, ConfigError, r"label set[\s\S]*utkface"),
        ({"suites": ["templates"]}, ConfigError, "logit_scale"),
        ({"filters": {"crime": "men"}}, ConfigError, "no row filter"),
        ({"resample": 100}, ConfigError, r"resample[\s\S]*resamples, permutations"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_with_place_found_and_expected(faces, vectors, changes, error, said):
    asked = {"labels": {"gender": ["man", "woman"] * (N // 2)}, "text_features": vectors, "suites": ["crime"]}
    asked |= {"image_features": faces[1], **QUICK} | changes
    with pytest.raises(error, match=said) as raised:
        plumbline.audit_features(asked.pop("image_features"), **asked)
    assert isinstance(raised.value, PlumblineError) and raised.value.found is not None


# --- What an audit is shown as, and compared with.


def test_a_result_is_shown_as_sentences_table_and_charts(found):
    assert all(finding.sentence in repr(found.findings) for finding in found.findings)
    page = found._repr_html_()
    assert "<table>" in page and "model on 240 images" in page and "<script" not in page
    assert found.findings._repr_html_().count("<li>") == len(found.findings) > 0
    assert repr(found).startswith("model on 240 images of images: agency")
    assert found.to_pandas().shape == found.table.shape
    assert found.scorecard().to_dict()["$schema"].startswith("https://vega.github.io/schema/vega-lite")


def test_the_charts_are_those_of_the_report(faces, vectors):
    labels = faces[0].select("gender")
    charts = plumbline.audit_features(
        faces[1], text_features=vectors, labels=labels, suites=["crime"], **QUICK
    ).charts()
    assert {"skew", "harm"} <= set(charts) and all(chart.to_dict() for chart in charts.values())


def test_a_scorecard_of_no_question_says_so(faces, vectors):
    without = plumbline.audit_features(
        faces[1], text_features=vectors, labels={"gender": faces[0]["gender"]}, suites=["crime_pooled"], **QUICK
    )
    with pytest.raises(MetricError, match="no question of the scorecard"):
        without.scorecard()


def test_numbers_are_those_of_an_export_and_every_parity_difference(found, tmp_path):
    found.export(tmp_path, ["numbers"])
    exported = {
        name.split("/", 2)[2]: value for name, value in json.loads((tmp_path / "numbers.json").read_text()).items()
    }
    numbers = found.numbers()
    assert exported and {name: numbers[name] for name in exported} == exported
    gaps = found.table.filter(pl.col("value").is_finite(), metric="parity_difference", definition="max_minus_min")
    assert gaps.height == sum(name.startswith("parity_difference/") for name in numbers) > 0


def test_numbers_go_to_whatever_takes_them(found):
    class Tracker:
        def log_metrics(self, numbers, step=None):
            self.sent = numbers, step

    tracker, kept = Tracker(), {}
    found.log_to(tracker, step=3)
    found.log_to(kept.update, step=4)
    assert tracker.sent == (found.numbers(), 3) and kept == {**found.numbers(), "step": 4}
    assert found.numbers()["max_skew/crime/crime/race"] == pytest.approx(
        found.table.filter(
            metric="max_skew", definition="mean_over_pairs", suite="crime", event="crime", attribute="race"
        )["value"].item()
    )
    with pytest.raises(MetricError, match="takes no numbers"):
        found.log_to(3)


def test_a_diff_is_paired_where_the_images_are_the_same(faces, vectors):
    records, images = faces
    # Names that no prompt has: nothing is recognised in vectors that are drawn at random.
    labels, asked = records.select("image_id", race="some " + pl.col("race")), {"suites": ["crime"], **QUICK}
    moved = images.copy()
    moved[:, 0] += 2 * (records["race"] == "Black").to_numpy()
    before, after = (
        plumbline.audit_features(each, text_features=vectors, labels=labels, **asked) for each in (images, moved)
    )
    diff = after.diff(before)
    skew = diff.filter(metric="max_skew", definition="mean_over_pairs", attribute="race").row(0, named=True)
    assert skew["compared"] == "paired" and skew["value"] == pytest.approx(skew["value_new"] - skew["value_old"])
    assert diff.filter(compared="paired")["value"].is_not_nan().any()
    assert before.diff(before).filter(pl.col("value").is_finite())["value"].abs().max() == 0
    order = np.random.default_rng(0).permutation(len(images))
    turned = plumbline.audit_features(moved[order], text_features=vectors, labels=labels[order], **asked)
    keys = [name for name in diff.columns if name not in ("cell_id_old", "cell_id_new")]
    assert_frame_equal(turned.diff(before).select(keys), diff.select(keys), check_row_order=False, abs_tol=1e-9)
    fewer = plumbline.audit_features(images[:100], text_features=vectors, labels=labels[:100], **asked)
    assert set(after.diff(fewer)["compared"]) == {"as if independent"}


# --- What is imported.

HEAVY = ("dagster", "mlflow", "great_expectations", "torch", "transformers", "altair", "pandas")
STEPS = {
    "import plumbline": (*HEAVY, "polars", "numpy"),
    "plumbline.max_skew([12, 8], [100, 100])": HEAVY,
    "import plumbline.metrics": HEAVY,
    "plumbline.audit_features; plumbline.Audit": HEAVY,
}


def test_an_import_loads_only_what_it_needs():
    lines = [f"{step}; print([name for name in {without!r} if name in sys.modules])" for step, without in STEPS.items()]
    source = "\n".join(["import sys", *lines])
    printed = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout
    assert dict(zip(STEPS, printed.split("\n"))) == dict.fromkeys(STEPS, "[]")


def test_what_is_promised_is_there_and_documented():
    for name in plumbline.__all__:
        assert getattr(plumbline, name).__doc__, name
    assert set(plumbline.__all__) <= set(dir(plumbline))
    with pytest.raises(AttributeError, match="no attribute `audits`"):
        plumbline.audits  # noqa: B018


def test_what_a_notebook_gets_wrong_is_told_whole_with_what_was_meant(tmp_path):
    embed = (lambda pictures: np.ones((len(pictures), 4)), lambda texts: np.ones((len(texts), 4)))
    paths, labels = [tmp_path / f"{i}.png" for i in range(5)], {"gender": ["man", "woman"] * 2 + ["man"]}
    with pytest.raises(PlumblineError, match=r"5 of 5 images are not there[\s\S]*images\[2\], .*2.png; and 2 more"):
        plumbline.audit(embed, images=paths, labels=labels, suites=["crime"])
    vectors = {"text_features": embed[1], "labels": labels, "suites": ["crime"]}
    with pytest.raises(PlumblineError, match=r"gendr; did you mean `gender`"):
        plumbline.audit_features(np.ones((5, 4)), attributes=["gendr"], **vectors)
    with pytest.raises(PlumblineError, match=r"resample; did you mean `resamples`"):
        plumbline.audit_features(np.ones((5, 4)), resample=10, **vectors)


def _audited(labels, n=60, **options):
    rng = np.random.default_rng(5)
    texts = plumbline.prompts(["crime"])
    return plumbline.audit_features(
        rng.normal(size=(n, D)), text_features=rng.normal(size=(len(texts), D)), labels=labels, suites=["crime"],
        **QUICK | options,
    )  # fmt: skip


def test_numbers_are_put_into_groups_and_nothing_of_the_labels_is_dropped_silently():
    genders = ["woman", "man"] * 29 + ["other", "other"]
    labels = {
        "gender": genders,
        "age": [25.0, 35.0, 45.0] * 19 + [None, 300, 25],
        "tenure": ["1", "5"] * 29 + ["12", "x"],
        "site": ["north", "south"] * 30,
    }
    audit = _audited(labels, bins={"tenure": (0, 2, 10)})
    rates = audit.table.filter(metric="outcome_proportion", event="crime")
    by_attribute = {name: set(rows["group"]) for (name,), rows in rates.group_by("attribute")}
    assert by_attribute["age_group"] >= {"20-29", "30-39", "40-49"}
    assert by_attribute["tenure"] >= {"0-1", "2-10"}
    assert audit.left_out["column `site`"].endswith("attributes=['site']")
    assert audit.left_out["images in no group of `age_group`"] == "1: the number lies in no bin"
    assert audit.left_out["images in no group of `tenure`"] == (
        "1: the value is no number; 1: the number lies in no bin"
    )
    said = audit.left_out["label `gender` of 31 images"]
    assert "fewer images than `min_shown`, 5" in said and "other" not in said, "a group of few people is not named"
    assert all(name in repr(audit) for name in audit.left_out)
    named = _audited(labels, attributes=["site"], bins={"age": (0, 30, 60)})
    assert "column `site`" not in named.left_out
    assert set(named.table.filter(attribute="age_group", metric="outcome_proportion")["group"]) >= {"0-29", "30-60"}


@pytest.mark.parametrize("limits", [(30,), (30, 30), (30, 20)])
def test_limits_that_do_not_ascend_are_refused(limits):
    with pytest.raises(ConfigError, match="must ascend"):
        _audited({"age": [20] * 60}, bins={"age": limits})


def test_what_is_misspelt_is_answered_with_what_was_meant():
    with pytest.raises(ConfigError, match="did you mean `crime`"):
        plumbline.prompts(["crme"])
    with pytest.raises(DatasetError, match="did you mean `gender`"):
        _audited({"gendr": ["woman", "man"] * 30})
    with pytest.raises(EncodingError, match=r"each of the 21 texts of `plumbline.prompts"):
        plumbline.audit_features(
            np.ones((6, 4)), text_features=np.ones((20, 4)), labels={"gender": ["a", "b"] * 3}, suites=["crime"]
        )


def test_of_three_genders_a_skew_is_a_mean_over_pairs_and_said_to_be():
    genders = np.repeat(["man", "woman", "non-binary"], 100)
    texts = plumbline.prompts(["crime"])
    vectors = np.random.default_rng(2).normal(size=(len(texts), D))
    pictures = np.random.default_rng(3).normal(size=(300, D))
    crimes = [i for i, text in enumerate(texts) if any(word in text for word in ("thief", "criminal", "suspicious"))]
    pictures[:90] += 3 * vectors[crimes[0]]
    pictures[100:140] += 3 * vectors[crimes[0]]
    audit = plumbline.audit_features(
        pictures, text_features=vectors, labels={"gender": genders}, suites=["crime"], resamples=200, permutations=2000
    )
    (sentence,) = (str(each.sentence) for each in audit.findings if "one gender than to another" in each.sentence)
    assert "on average over pairs; furthest apart are" in sentence
    assert audit.scores.filter(question="crime_gender")["compared"].to_list() == [3]
    two = plumbline.audit_features(
        pictures[:200], text_features=vectors, labels={"gender": genders[:200]}, suites=["crime"], **QUICK
    )
    assert not any("over pairs" in each.sentence for each in two.findings)


def test_a_skew_of_a_group_that_never_gets_the_label_is_said_to_be_smoothed():
    rng = np.random.default_rng(3)
    pictures, texts = np.abs(rng.normal(size=(300, D))), plumbline.prompts(["crime"])
    pictures[150:, 0] = 0
    vectors = np.zeros((len(texts), D))
    thief = next(i for i, text in enumerate(texts) if "thief" in text)
    vectors[:, 1] = 1
    vectors[thief, 0] = 9
    audit = plumbline.audit_features(
        pictures, text_features=vectors, labels={"gender": np.repeat(["man", "woman"], 150)}, suites=["crime"],
        resamples=200, permutations=2000,
    )  # fmt: skip
    said = [each.sentence for each in audit.findings if "one gender than to another" in each.sentence]
    assert said and all("one gender than to another, smoothed" in sentence for sentence in said)


def test_arguments_of_another_kind_are_refused_in_words():
    labels = {"gender": ["woman", "man"] * 30}
    for refused, error, said in (
        (lambda: _audited(labels, margins={"maxskew": 0.1}), ConfigError, "did you mean `max_skew`"),
        (lambda: plumbline.prompts([]), ConfigError, "no suite is asked"),
        (lambda: _audited({"age": [20] * 60}, bins={"age": 3}), ConfigError, "limits of groups are numbers"),
        (lambda: _audited({"age": [20] * 60}, bins=["age"]), ConfigError, "limits of groups are numbers"),
        (lambda: _audited(labels, permutations=10**9), ConfigError, "1,000,000"),
        (lambda: plumbline.audit((len, len), images="pics"), EncodingError, "a sequence of paths"),
        (lambda: _audited(labels).diff(None), MetricError, "an Audit"),
    ):
        with pytest.raises(error, match=said):
            refused()
    assert plumbline.prompts("crime") == plumbline.prompts(["crime"])
    assert _audited(labels, image_ids=range(60)).table.height


def test_two_pictures_that_are_the_same_are_both_audited(tmp_path):
    from PIL import Image

    paths = []
    for number in range(30):
        path = tmp_path / f"{number}.png"
        Image.fromarray(np.full((8, 8, 3), 7 * (number % 20), np.uint8)).save(path)
        paths.append(path)
    embedder = (
        lambda images: [[im.getpixel((0, 0))[0], 128.0] for im in images],
        lambda texts: [[len(t), 40.0] for t in texts],
    )
    audit = plumbline.audit(embedder, images=paths, labels={"gender": ["woman", "man"] * 15}, suites=["crime"], **QUICK)
    assert audit.table.filter(metric="harm_rate")["n"].unique().to_list() == [30]


def test_by_default_what_needs_a_scale_is_left_out_and_named_it_is_asked_for():

    def vectors(texts):
        return np.random.default_rng(1).normal(size=(len(texts), D))

    pictures, labels = np.random.default_rng(2).normal(size=(40, D)), {"Gender": ["man", "woman"] * 20}
    audit = plumbline.audit_features(pictures, text_features=vectors, labels=labels, attributes="Gender", **QUICK)
    assert "templates" not in audit.cell.logits and "logit_scale" in audit.left_out["templates"]
    with pytest.raises(ConfigError, match="templates needs the model's own factor"):
        plumbline.audit_features(
            pictures, text_features=vectors, labels=labels, attributes="Gender", suites=["templates"], **QUICK
        )
    other = _audited({"gender": ["man", "woman"] * 30, "Race": ["a", "b"] * 30, "site": ["c", "d"] * 30},
                     attributes="site", crosses=("site", "gender"))  # fmt: skip
    assert other.left_out["column `Race`"].startswith("rename it `race`")
    assert "site × gender" in other.table["attribute"].unique().to_list()


def test_an_export_writes_below_its_folder_alone(tmp_path):
    labels, folder = {"gender": ["woman", "man"] * 30}, tmp_path / "out"
    with pytest.raises(StorageError, match=r"would not lie inside its folder[\s\S]*'model_cards/../../own.md'"):
        _audited(labels, name="../../own").export(folder, ["numbers", "model_cards"])
    assert not any(tmp_path.iterdir())
    assert folder / "model_cards/org/clip.md" in _audited(labels, name="org/clip").export(folder, ["model_cards"])
    (folder / "model_cards" / "away").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="would not lie inside"):
        _audited(labels, name="away/own").export(folder, ["model_cards"])


@pytest.mark.parametrize(
    ("labels", "options", "said"),
    [
        ({"gender": ["wo\x1b[31mman", "man"] * 30}, {}, r"labels, column `gender`[\s\S]*wo\\u001b\[31mman"),
        ({"gen\x1bder": ["a", "b"] * 30}, {"attributes": ["gen\x1bder"]}, r"column `gen\\u001bder`"),
        ({"gender": ["woman", "man"] * 30}, {"name": "a\x1bb"}, r"name[\s\S]*a\\u001bb"),
        ({"gender": ["woman", "man"] * 30}, {"dataset": "a\nb"}, r"dataset[\s\S]*a\\u000ab"),
    ],
)
def test_names_that_cannot_be_shown_are_refused(labels, options, said):
    with pytest.raises(PlumblineError, match=said):
        _audited(labels, **options)
