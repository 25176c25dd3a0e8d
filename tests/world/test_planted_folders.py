"""The planted folders lie on disk as the real datasets do, with the bad files that they promise."""

import csv
import hashlib
import json
import os
import re
import time
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image, UnidentifiedImageError

from plumbline.errors import ConfigError
from plumbline.images.decoding import read_image_file
from plumbline.world import faces, folders

BANDS = {"0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "more than 70"}
RACES = {"White", "Black", "Indian", "East Asian", "Southeast Asian", "Middle Eastern", "Latino_Hispanic"}


def rows(root: Path, split: str) -> list[dict[str, str]]:
    with (root / f"fairface_label_{split}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("split", "good"), [("train", 700), ("val", 2100)])
def test_fairface_lists_its_files_with_the_datasets_own_words(planted_fairface, split, good):
    listed = rows(planted_fairface, split)
    assert list(listed[0]) == ["file", "age", "gender", "race", "service_test"]
    fine = [row for row in listed if row["file"] not in folders.bad_files("fairface")]
    assert [row["file"] for row in fine] == [f"{split}/{i}.jpg" for i in range(1, good + 1)]
    assert {row["age"] for row in fine} == BANDS
    assert {row["gender"] for row in fine} == {"Male", "Female"}
    assert {row["race"] for row in fine} == RACES
    assert {row["service_test"] for row in fine} == {"True", "False"}
    assert all((planted_fairface / row["file"]).is_file() for row in fine)


def test_fairface_images_are_readable_64_pixel_jpegs(planted_fairface):
    for number in (1, 700, 2100):
        with Image.open(planted_fairface / f"val/{number}.jpg") as image:
            image.load()
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (64, 64))


def test_fairface_bad_files_have_the_faults_they_are_listed_with(planted_fairface):
    listed = {row["file"]: row for row in rows(planted_fairface, "val")}
    paths = by_fault("fairface")
    assert set(folders.bad_files("fairface")) < set(listed)
    check_decoding_faults(planted_fairface, paths)
    assert not (planted_fairface / paths["missing file"][0]).exists()
    assert listed[paths["unknown race"][0]]["race"] not in RACES
    first, second = paths["same bytes, other gender"]
    assert (planted_fairface / first).read_bytes() == (planted_fairface / second).read_bytes()
    assert listed[first]["gender"] != listed[second]["gender"]
    outside = (planted_fairface / paths["leaves the root"][0]).resolve()
    assert outside.is_file()
    assert not outside.is_relative_to(planted_fairface.resolve())


def check_decoding_faults(root: Path, paths: dict[str, list[str]]) -> None:
    assert (root / paths["no bytes"][0]).stat().st_size == 0
    with Image.open(root / paths["cut off"][0]) as image, pytest.raises(OSError, match="truncated"):
        image.load()
    with pytest.raises(UnidentifiedImageError):
        Image.open(root / paths["text"][0])


def test_utkface_names_give_age_gender_race_and_date(planted_utkface):
    names = sorted(path.name for path in planted_utkface.iterdir())
    bad = folders.bad_files("utkface")
    assert set(bad) < set(names)
    fine = [name for name in names if name not in bad]
    matches = [re.fullmatch(r"(\d+)_([01])_([0-4])_(\d{17})\.jpg\.chip\.jpg", name) for name in fine]
    assert len(fine) == 1500
    assert all(matches)
    assert {match[3] for match in matches} == set("01234")
    assert {int(match[1]) for match in matches} <= set(range(117))
    assert len({match[4] for match in matches}) == 1500


def test_utkface_bad_files_have_the_faults_they_are_listed_with(planted_utkface):
    paths = by_fault("utkface")
    check_decoding_faults(planted_utkface, paths)
    assert paths["malformed name"][0].count("_") == 2
    assert paths["unknown race"][0].split("_")[2] == "7"
    first, second = paths["same bytes, other gender"]
    assert (planted_utkface / first).read_bytes() == (planted_utkface / second).read_bytes()
    assert first.split("_")[1] != second.split("_")[1]


def by_fault(kind: str) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for path, fault in folders.bad_files(kind).items():
        paths.setdefault(fault, []).append(path)
    return paths


def test_celeba_has_a_count_forty_names_a_sign_each_and_a_partition(planted_base):
    root = folders.ensure("celeba", planted_base)
    count, names, *lines = (root / "list_attr_celeba.txt").read_text("utf-8").splitlines()
    assert int(count) == len(lines) == 408
    assert len(names.split()) == 40
    assert all(re.fullmatch(r"\S+\.jpg(  1| -1){40}", line) for line in lines)
    male = {line.split()[0]: line.split()[1 + names.split().index("Male")] for line in lines}
    truth = pl.read_csv(root.parent / folders.TRUTH_FILE)
    said = [{"1": "man", "-1": "woman"}[male[Path(path).name]] for path in truth["path"]]
    assert said == truth["gender"].to_list()
    parts = dict(line.split() for line in (root / "list_eval_partition.txt").read_text("utf-8").splitlines())
    assert Counter(parts[Path(path).name] for path in truth["path"]) == {"0": 320, "1": 40, "2": 40}


def test_celeba_bad_files_have_the_faults_they_are_listed_with(planted_base):
    root = folders.ensure("celeba", planted_base)
    paths = by_fault("celeba")
    check_decoding_faults(root, paths)
    lines = {line.split()[0]: line.split() for line in (root / "list_attr_celeba.txt").read_text().splitlines()[2:]}
    partition = (root / "list_eval_partition.txt").read_text()
    assert {Path(path).name for path in folders.bad_files("celeba")} == {Path(name).name for name in lines} - {
        f"{number:06}.jpg" for number in range(1, 401)
    }
    assert not (root / paths["missing file"][0]).exists()
    (unplaced,) = paths["no partition"]
    assert (root / unplaced).is_file()
    assert Path(unplaced).name not in partition
    first, second = paths["same bytes, other gender"]
    assert (root / first).read_bytes() == (root / second).read_bytes()
    assert lines[Path(first).name][21] != lines[Path(second).name][21]
    assert (root / paths["leaves the root"][0]).is_file()
    assert paths["leaves the root"][0] in lines


def test_idenprof_has_ten_occupations_in_two_splits(planted_base):
    root = folders.ensure("idenprof", planted_base)
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.jpg")}
    truth = pl.read_csv(root.parent / folders.TRUTH_FILE)
    assert found == {*truth["path"], *folders.bad_files("idenprof")}
    counts = Counter(tuple(path.split("/")[:2]) for path in truth["path"])
    assert set(counts) == {(split, name) for split in ("train", "test") for name in faces.OCCUPATIONS}
    assert {(split, n) for (split, _), n in counts.items()} == {("train", 30), ("test", 10)}
    assert [path.split("/")[1] for path in truth["path"]] == truth["occupation"].to_list()


def test_idenprof_bad_files_have_the_faults_they_are_listed_with(planted_base):
    root = folders.ensure("idenprof", planted_base)
    paths = by_fault("idenprof")
    check_decoding_faults(root, paths)
    assert paths["malformed name"][0].count("/") == 1
    assert paths["unknown occupation"][0].split("/")[1] not in faces.OCCUPATIONS
    first, second = paths["same bytes, other occupation"]
    assert (root / first).read_bytes() == (root / second).read_bytes()
    assert first.split("/")[1] != second.split("/")[1]


def test_pata_lists_labels_and_addresses_and_has_the_images_but_some(planted_base):
    root = folders.ensure("pata", planted_base)
    lines = (root / "pata_fairness.files.lst").read_text("utf-8").splitlines()
    labels = [line.split("|")[0] for line in lines]
    assert all(re.fullmatch(r"[a-z_]+\|https://\S+", line) for line in lines)
    truth = pl.read_csv(root.parent / folders.TRUTH_FILE)
    paths = [f"images/{label}_{position}.jpg" for position, label in enumerate(labels)]
    assert paths == [*truth["path"], *folders.bad_files("pata")]
    names = {"Black": "black", "White": "caucasian", "East Asian": "eastasian", "Latino_Hispanic": "hispanic",
             "Indian": "indian"}  # fmt: skip
    for label, scene, race, gender, age, group in zip(
        labels, *truth.select("scene", "race", "gender", "age", "age_group")
    ):
        assert label == f"{scene}_{names[race]}_{ {'man': 'male', 'woman': 'female'}[gender] }_{age}"
        assert {"young": "young_adult", "old": "elderly"}[age] == group
    both = truth.group_by("scene").agg(pl.col("age").n_unique())
    assert dict(Counter(both["age"])) == {2: 8, 1: 4}
    assert sum("_" in scene for scene in both["scene"]) == 3
    assert truth.group_by("scene", "race", "gender").len()["len"].unique().to_list() == [4]
    assert not truth["ambiguous"].any()
    shorts = [scene["short"] for scene in json.loads((root / "pata_fairness.captions.json").read_text("utf-8"))]
    assert sorted(shorts) == sorted(both["scene"])


def test_pata_bad_files_have_the_faults_they_are_listed_with(planted_base):
    root = folders.ensure("pata", planted_base)
    paths = by_fault("pata")
    check_decoding_faults(root, paths)
    assert len(paths["missing file"]) == 12
    assert not any((root / path).exists() for path in paths["missing file"])
    assert "_martian_" in paths["unknown race"][0]
    assert Path(paths["malformed name"][0]).stem.count("_") == 3
    first, second = paths["same bytes, other gender"]
    assert (root / first).read_bytes() == (root / second).read_bytes()
    assert first.split("_")[2] != second.split("_")[2]


def test_neutral_portraits_are_nineteen_that_show_no_gender(planted_base):
    root = folders.ensure("neutral", planted_base)
    truth = pl.read_csv(root.parent / folders.TRUTH_FILE)
    assert truth.height == 19
    assert truth["ambiguous"].all()
    assert {path.name for path in root.iterdir()} == {*truth["path"], *folders.bad_files("neutral")}
    check_decoding_faults(root, by_fault("neutral"))


@pytest.mark.parametrize("kind", folders.KINDS)
def test_truth_lies_beside_the_dataset_where_no_reader_sees_it(kind, planted_base):
    root = folders.ensure(kind, planted_base)
    truth = pl.read_csv(root.parent / folders.TRUTH_FILE, schema_overrides={"age": pl.String})
    assert not list(root.rglob(folders.TRUTH_FILE))
    assert truth["path"].is_unique().all()
    assert not set(truth["path"]) & set(folders.bad_files(kind))
    assert truth.select(pl.col("u", "v", "w").is_between(0, 1).all()).row(0) == (True, True, True)
    assert set(truth["race"]) <= RACES
    assert set(truth["gender"]) <= {"man", "woman"}
    assert set(truth["age_group"]) <= set(faces.AGE_GROUPS)


@pytest.mark.parametrize("kind", folders.KINDS)
def test_every_kind_has_files_that_are_bad_on_purpose(kind):
    assert set(folders.bad_files(kind).values()) >= {"no bytes", "cut off", "text"}


@pytest.mark.parametrize("kind", [kind for kind in folders.KINDS if not kind.endswith("_parquet")])
def test_good_images_are_readable_64_pixel_pictures_and_all_differ(kind, planted_base):
    root = folders.ensure(kind, planted_base)
    paths = pl.read_csv(root.parent / folders.TRUTH_FILE)["path"]
    for path in (paths[0], paths[len(paths) // 2], paths[-1]):
        with Image.open(BytesIO(read_image_file(root / path))) as image:
            image.load()
            assert (image.mode, image.size) == ("RGB", (64, 64))
    assert len({hashlib.sha256(read_image_file(root / path)).digest() for path in paths}) == len(paths)


def test_fairface_truth_agrees_with_its_labels(planted_fairface):
    truth = pl.read_csv(planted_fairface.parent / folders.TRUTH_FILE)
    labels = {row["file"]: row for split in ("train", "val") for row in rows(planted_fairface, split)}
    said = [(labels[p]["race"], labels[p]["gender"], labels[p]["age"]) for p in truth["path"]]
    words = {"man": "Male", "woman": "Female"}
    assert said == [(r, words[g], a) for r, g, a in truth.select("race", "gender", "age").iter_rows()]


def test_utkface_truth_agrees_with_its_names(planted_utkface):
    truth = pl.read_csv(planted_utkface.parent / folders.TRUTH_FILE, schema_overrides={"age": pl.String})
    codes = [tuple(path.split("_")[:2]) for path in truth["path"]]
    assert codes == [(a, str(["man", "woman"].index(g))) for a, g in truth.select("age", "gender").iter_rows()]


def test_ambiguous_faces_are_a_small_share_of_one_race_only(planted_fairface):
    truth = pl.read_csv(planted_fairface.parent / folders.TRUTH_FILE)
    counts = Counter(truth.filter("ambiguous")["race"])
    assert set(counts) == {"Southeast Asian"}
    assert 0.02 < counts["Southeast Asian"] / truth.filter(race="Southeast Asian").height < 0.09


@pytest.mark.parametrize("kind", folders.KINDS)
def test_a_second_writing_gives_the_same_bytes(kind, planted_base, tmp_path):
    def digests(root: Path) -> dict[str, str]:
        paths = [path for path in root.parent.rglob("*") if path.is_file()]
        return {str(p.relative_to(root.parent)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}

    assert digests(folders.ensure(kind, tmp_path)) == digests(folders.ensure(kind, planted_base))
    assert [path.name for path in tmp_path.iterdir()] == [f"{kind}-{folders.world_version()}"]


def test_no_two_kinds_show_the_same_faces(planted_base):
    seen: Counter[bytes] = Counter()
    for kind in ("celeba", "idenprof", "neutral", "pata"):
        root = folders.ensure(kind, planted_base)
        paths = pl.read_csv(root.parent / folders.TRUTH_FILE)["path"]
        seen.update({hashlib.sha256((root / path).read_bytes()).digest() for path in paths})
    assert set(seen.values()) == {1}


def test_a_folder_that_is_there_is_left_alone(planted_utkface, planted_base):
    marked = next(planted_utkface.iterdir())
    before = marked.stat()
    assert folders.ensure("utkface", planted_base) == planted_utkface
    assert (marked.stat().st_mtime_ns, marked.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_failed_writing_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(faces, "as_jpeg", fail)
    with pytest.raises(OSError, match="No space"):
        folders.ensure("utkface", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_loser_of_a_race_takes_the_winners_folder(planted_utkface, tmp_path, monkeypatch):
    final = tmp_path / f"utkface-{folders.world_version()}"

    def overtaken(root: Path, _: np.random.Generator) -> pl.DataFrame:
        for folder in (root, final / "utkface"):
            folder.mkdir(parents=True)
            (folder / folder.parent.name).touch()
        return pl.DataFrame({"path": []})

    monkeypatch.setitem(folders.LAYOUTS, "utkface", overtaken)
    assert folders.ensure("utkface", tmp_path) == final / "utkface"
    assert [path.name for path in (final / "utkface").iterdir()] == [final.name]
    assert [path.name for path in tmp_path.iterdir()] == [final.name]


def test_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such dataset"):
        folders.ensure("imagenet", tmp_path)


def test_faces_are_the_same_for_the_same_seed_and_differ_for_another():
    def images(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return faces.draw(faces.sample_attributes(40, rng), rng)

    assert images(1).shape == (40, 64, 64, 3)
    assert images(1).dtype == np.uint8
    assert np.array_equal(images(1), images(1))
    assert not np.array_equal(images(1), images(2))


def test_each_latent_can_be_seen():
    rng = np.random.default_rng(0)
    attributes = faces.sample_attributes(200, rng)
    images = faces.draw(attributes, rng).astype(float)
    background, shirt, curtain = images[:, 3, 12], images[:, 62, 32], images[:, 32, 1]
    seen = {"u": background.mean(axis=1), "v": shirt[:, 0] - shirt[:, 2], "w": curtain[:, 0] - curtain[:, 1]}
    for latent, value in seen.items():
        assert np.corrcoef(value, attributes[latent])[0, 1] > 0.98


def test_no_faces_are_an_empty_stack():
    empty = faces.sample_attributes(0, np.random.default_rng(0))
    assert faces.draw(empty, np.random.default_rng(0)).shape == (0, 64, 64, 3)


def test_a_jpeg_keeps_the_face():
    rng = np.random.default_rng(0)
    image = faces.draw(faces.sample_attributes(1, rng), rng)[0]
    with Image.open(BytesIO(faces.as_jpeg(image))) as decoded:
        assert np.abs(np.asarray(decoded, float) - image).mean() < 6


def test_what_a_killed_process_planted_in_part_is_removed_after_an_hour(tmp_path, monkeypatch):
    def layout(root, rng):
        root.mkdir()
        return pl.DataFrame({"path": ["a.jpg"]})

    monkeypatch.setitem(folders.LAYOUTS, "utkface", layout)
    for name, age_s in ((".utkface-old", 7200), (".utkface-new", 60), (".fairface-old", 7200)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    folders.ensure("utkface", tmp_path)
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".fairface-old", ".utkface-new"]
