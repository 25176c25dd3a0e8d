"""Zero-shot accuracy: the numbers of CLIP_benchmark on the same folder and checkpoint, and its intervals."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError
from upath import UPath

from plumbline.catalog.suites import (
    ZeroShotSettings,
    class_names,
    imagenet_names,
    load_suite,
    templates_of,
    zero_shot_suite,
)
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.loading import ready_libraries
from plumbline.config.audit import Audit
from plumbline.datasets.ingestion import ingest
from plumbline.datasets.registry import reader_for
from plumbline.encoders.embedding import embed_classes, embed_images
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.errors import ConfigError
from plumbline.metrics.cell import build_cell, text_products
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.zero_shot import utility_rows, zero_shot_recognition
from plumbline.reasons import find
from plumbline.storage import ShardCache
from plumbline.world.folders import ensure

CHECKPOINT = Path(__file__).parents[2] / "plumbline" / "world" / "checkpoints" / "small-bazaar-3k"
TEMPLATES = ("a photo of a {}.", "{} portrait", "a drawing of the {}.")


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    return ensure("image_folder", tmp_path_factory.mktemp("world"))


def rows_of(things, tmp_path):
    """Return the rows of the planted folder, by the steps of the pipeline."""
    records = ingest(reader_for("image_folder"), things, dataset="things").records
    files = checkpoint_files("e", f"local-dir:{CHECKPOINT}", project=tmp_path, fetched=tmp_path)
    encoder, cache = load_encoder(files, Placement.choose(device="cpu")), ShardCache(UPath(tmp_path))
    suite = zero_shot_suite(records["label"].unique().sort().to_list(), ZeroShotSettings(templates=TEMPLATES))
    paths = [things / path for path in records["path"]]
    images = embed_images(encoder, paths, records["image_id"].to_list(), cache, shard_rows=64).array
    arrays = text_products(images, embed_classes(encoder, suite, cache).array, [suite.id] * len(suite.texts))
    cell = build_cell(
        model="m", dataset="things", records=records, arrays=arrays, texts=suite.texts, suites=[suite], filters={},
        shared_space=True, scaled=False, logit_scale=100.0,
    )  # fmt: skip
    return records, suite, utility_rows(cell, settings=MetricSettings())


def test_the_numbers_are_those_of_clip_benchmark(things, tmp_path):
    ready_libraries()
    import open_clip
    from clip_benchmark.metrics.zeroshot_classification import run_classification, zero_shot_classifier
    from PIL import Image
    from sklearn.metrics import balanced_accuracy_score
    from torch.utils.data import DataLoader, Dataset

    records, suite, rows = rows_of(things, tmp_path)
    classes = [candidate.word for candidate in suite.candidates]
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{CHECKPOINT}", require_pretrained=True)

    class Folder(Dataset):
        def __init__(self):
            self.classes = classes

        def __len__(self):
            return records.height

        def __getitem__(self, i):
            return transform(Image.open(things / records["path"][i])), classes.index(records["label"][i])

    templates = [template.replace("{}", "{c}") for template in TEMPLATES]
    tokenizer = open_clip.get_tokenizer(f"local-dir:{CHECKPOINT}")
    classifier = zero_shot_classifier(model.eval(), tokenizer, classes, templates, "cpu", amp=False)
    logits, target = run_classification(model, classifier, DataLoader(Folder(), batch_size=64), "cpu", amp=False)
    # Its `accuracy` takes float() of an array of one number, which numpy 2.4 refuses; this is what it counts.
    correct = logits.topk(5, 1, True, True)[1].t().eq(target.view(1, -1))
    theirs = {"acc1": float(correct[:1].sum()) / len(target), "acc5": float(correct[:5].sum()) / len(target)}
    theirs["mean_per_class_recall"] = balanced_accuracy_score(target, logits.argmax(axis=1))
    own = {(m, d): v for m, d, v in rows.select("metric", "definition", "value").rows()}
    assert own == {
        ("utility_accuracy", "top_1"): pytest.approx(theirs["acc1"], abs=1e-6),
        ("utility_accuracy", "top_5"): pytest.approx(theirs["acc5"], abs=1e-6),
        ("mean_per_class_recall", "top_1"): pytest.approx(theirs["mean_per_class_recall"], abs=1e-6),
    }
    assert 0.3 < own["utility_accuracy", "top_1"] < own["utility_accuracy", "top_5"], (
        "the planted checkpoint knows them"
    )
    assert (rows["ci_low"] < rows["value"]).all() and (rows["value"] <= rows["ci_high"]).all()
    assert records.height == 200 and find(rows["reason_codes"][0], "classes_to_choose_from").params == {"classes": 10}


def test_recall_is_the_mean_over_classes_and_few_classes_have_no_five_best():
    ranks, classes = np.array([0, 0, 0, 2, 0, 1]), np.array([0, 0, 0, 0, 1, 1])
    found = zero_shot_recognition(ranks, classes, number=3)
    assert (found.top_1.value, found.mean_per_class.value) == (4 / 6, (3 / 4 + 1 / 2) / 2)
    assert np.isnan(found.top_5.value) and found.top_5.reason[0].code == "too_few_classes"
    assert zero_shot_recognition(ranks, classes, number=9).top_5.value == 1
    assert np.isnan(zero_shot_recognition(ranks[:0], classes[:0], number=9).top_1.value)


def test_names_and_templates_are_open_clips():
    ready_libraries()
    import open_clip

    names = imagenet_names()
    assert len(names) == 1000 and (names["n01440764"], names["n15075141"]) == ("tench", "toilet paper")
    assert [*names.values()] == [*open_clip.IMAGENET_CLASSNAMES]
    assert class_names(["n01440764", "n01443537"], {"n01443537": "fish"}) == ("tench", "fish")
    assert class_names(["n01440764", "ice_cream"], {}) == ("n01440764", "ice cream")
    printed = [template("tench") for template in open_clip.OPENAI_IMAGENET_TEMPLATES]
    assert [each.replace("{}", "tench") for each in templates_of(ZeroShotSettings())] == printed
    assert len(templates_of(ZeroShotSettings(templates="simple"))) == 7
    assert (
        zero_shot_suite(["a"], ZeroShotSettings()).hash
        != zero_shot_suite(["a"], ZeroShotSettings(templates="simple")).hash
    )
    every = zero_shot_suite([*names], ZeroShotSettings())
    assert (len({each.text for each in every.candidates}), len({each.word for each in every.candidates})) == (1000, 998)
    with pytest.raises(ConfigError, match="called the same"):
        class_names(["n01440764", "n01443537"], {"n01443537": "tench"})
    for names in ({"c": "x"}, {"a": "b"}):
        with pytest.raises(ConfigError):
            class_names(["a", "b"], names)
    with pytest.raises(ValidationError, match="one slot"):
        ZeroShotSettings(templates=("a photo",))


def test_things_are_asked_what_they_are_and_people_are_not():
    asked = {
        "datasets": {"things": {"reader": "image_folder", "root": "x"}, "faces": {"reader": "fairface", "root": "y"}},
        "encoders": {"e": {"address": "local-dir:z"}},
    }
    audit = Audit.model_validate(asked | {"audit": [{}]})
    assert audit.cells["things", "e"] == ("zero_shot",) and "zero_shot" not in audit.cells["faces", "e"]
    for dataset, suite in (("things", "crime"), ("faces", "zero_shot")):
        with pytest.raises(ValidationError, match=r"which (faces|things) have"):
            Audit.model_validate(asked | {"audit": [{"datasets": [dataset], "suites": [suite]}]})


def test_a_class_may_have_folders_below_and_a_file_beside_the_classes_is_refused(tmp_path):
    from PIL import Image

    for i, path in enumerate(("n01440764/a.JPEG", "n01440764/more/b.jpg", "n01443537/c.png", "d.jpg")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (60 * i, 0, 0)).save(tmp_path / path)
    ingested = ingest(reader_for("image_folder"), tmp_path, dataset="things")
    assert ingested.records["label"].to_list() == ["n01440764", "n01440764", "n01443537"]
    assert ingested.quarantine.select("path", "code").rows() == [("d.jpg", "malformed_name")]
    assert load_suite("crime").ensemble == () and isinstance(ingested.records, pl.DataFrame)
