"""The PATA reader: labels parsed from the right, images named by line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from plumbline.datasets.filters import row_filter
from plumbline.datasets.ingestion import folder_digest, ingest
from plumbline.datasets.pata import CAPTIONS, INDEX
from plumbline.datasets.records import Entry, Ingested
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError
from plumbline.statistics.clusters import cluster_codes

# Labels as they stand in pata_fairness.files.lst; addresses shortened. The sixth address is listed for two scenes.
EXCERPT = """\
forest_indian_male_young|https://images.example/uploads/2018/04/1020x520-942x480.jpg
forest_indian_female_young|http://images.example/a/cache681/230/23046.jpg
forest_hispanic_male_young|https://images.example/medium/photo.jpg
bench_indian_male_old|https://images.example/cache/2020/9/24/4e02fc36.jpg
bench_hispanic_male_old|http://images.example/photos/gimage/gua076.jpg
office_indian_male_old|https://images.example/videos/1049008201/thumb/7.jpg?ip=x480
car_eastasian_female_old|https://images.example/070/959/836/1/70959836.jpg
soldier_hispanic_female_young|https://images.example/472122343?k=6&amp;m=472122343&amp;s=612x612&amp;w=0
shopping_black_male_old|https://images.example/1289906222?s=612x612
gun_range_indian_male_young|https://images.example/msid-79366741/79366741.jpg
yatch_indian_male_young|https://images.example/247414516/Boat%20Michael20772.jpg
fashion_show_indian_male_young|https://images.example/236x/bf/33/2f.jpg
drinking_water_indian_male_young|https://images.example/cache/2019/9/6/fb.jpg
roadside_caucasian_male_young|http://images.example/the-road-ahead
computer_indian_male_old|https://images.example/videos/1049008201/thumb/7.jpg?ip=x480
"""


def written(root: Path, text: str | bytes, images: dict[str, bytes]) -> Path:
    (root / "images").mkdir()
    (root / INDEX).write_bytes(text.encode() if isinstance(text, str) else text)
    for name, data in images.items():
        (root / "images" / name).write_bytes(data)
    return root


def read(root: Path) -> Ingested:
    ingested = ingest(reader_for("pata"), root, dataset="pata")
    assert ingested.records.height + ingested.quarantine.height == ingested.listed
    return ingested


def refused(ingested: Ingested) -> list[tuple[object, ...]]:
    return ingested.quarantine.select("path", "line", "stage", "code").rows()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_published_lines_become_records(newline: str, tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    labels = [line.split("|")[0] for line in EXCERPT.splitlines()]
    names = [f"{label}_{position}.jpg" for position, label in enumerate(labels)]
    text = EXCERPT.replace("\n", newline)
    root = written(tmp_path, text, {name: jpeg(seed) for seed, name in enumerate(names)})
    records = read(root).records
    assert records["path"].to_list() == [f"images/{name}" for name in names]
    underscored = records["scene"].to_list()[9:13]
    assert underscored == ["gun_range", "yatch", "fashion_show", "drinking_water"]
    assert records.select("race", "gender", "age").rows()[6:10] == [
        ("eastasian", "woman", "old"),
        ("hispanic", "woman", "young"),
        ("black", "man", "old"),
        ("indian", "man", "young"),
    ]
    assert records["split"].is_null().all()


def test_a_dead_address_is_quarantined_as_a_missing_file(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    ingested = read(written(tmp_path, EXCERPT, {"forest_hispanic_male_young_2.jpg": jpeg()}))
    assert ingested.listed == 15
    assert ingested.records["race"].to_list() == ["hispanic"]
    assert set(ingested.quarantine["code"]) == {"missing_file"}
    assert refused(ingested)[3] == ("images/bench_hispanic_male_old_4.jpg", 5, "image", "missing_file")


def test_an_image_may_have_any_accepted_extension_but_only_one(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    images = {
        "forest_indian_male_young_0.JPEG": jpeg(0),
        "forest_indian_female_young_1.jpg": jpeg(1),
        "forest_indian_female_young_1.png": jpeg(2),
        "forest_indian_female_young_1.txt": b"not looked at",
        "forest_hispanic_male_young_2.webp": jpeg(3),
    }
    ingested = read(written(tmp_path, "".join(EXCERPT.splitlines(keepends=True)[:3]), images))
    assert ingested.records["path"].to_list() == ["images/forest_indian_male_young_0.JPEG"]
    assert refused(ingested) == [
        ("images/forest_indian_female_young_1.jpg", 2, "index", "ambiguous_file"),
        ("images/forest_hispanic_male_young_2.webp", 3, "image", "wrong_extension"),
    ]
    assert "_1.jpg, forest_indian_female_young_1.png" in ingested.quarantine["found"][0]


def test_a_picture_listed_for_two_scenes_has_a_row_in_each(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    names = ("office_indian_male_old_5.jpg", "computer_indian_male_old_14.jpg")
    ingested = read(written(tmp_path, EXCERPT, dict.fromkeys(names, jpeg())))
    assert ingested.records.select("path", "scene").rows() == [
        (f"images/{names[0]}", "office"),
        (f"images/{names[1]}", "computer"),
    ]
    assert ingested.records["image_id"].n_unique() == 1
    # The two are one photograph: they are drawn together, and the dataset's other images alone.
    more = pl.concat([ingested.records, ingested.records.head(2).with_columns(image_id=pl.Series(["b", "c"]))])
    codes_of = cluster_codes(more)
    assert codes_of is not None
    assert codes_of[0] == codes_of[1]
    assert len(set(codes_of)) == 3


def test_a_picture_listed_for_two_people_is_a_conflict(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    names = ("office_indian_male_old_5.jpg", "shopping_black_male_old_8.jpg")
    ingested = read(written(tmp_path, EXCERPT, dict.fromkeys(names, jpeg())))
    codes = dict(zip(ingested.quarantine["path"], ingested.quarantine["code"]))
    assert [codes[f"images/{name}"] for name in names] == ["conflicting_duplicate"] * 2


def test_the_captions_are_an_index_where_they_are_there(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    root, reader = written(tmp_path, EXCERPT, {}), reader_for("pata")
    assert reader.index_files(root) == [INDEX]
    digests = [folder_digest(reader, root)]
    for content in ("[]", "[{}]"):
        (root / CAPTIONS).write_text(content)
        assert reader.index_files(root) == [INDEX, CAPTIONS]
        digests.append(folder_digest(reader, root))
        assert read(root).folder_digest == digests[-1]
    assert len(set(digests)) == 3


def test_a_pipe_in_the_place_of_the_captions_is_not_waited_for(tmp_path: Path) -> None:
    root = written(tmp_path, EXCERPT, {})
    os.mkfifo(root / CAPTIONS)
    with pytest.raises(DatasetError, match="a pipe"):
        read(root)


@pytest.mark.parametrize(
    ("line", "path", "stage", "code"),
    [
        (b"office_black_male_old", INDEX, "index", "ragged_row"),
        (b"office_black_male_old|", INDEX, "index", "ragged_row"),
        (b"|https://images.example/1.jpg", INDEX, "index", "ragged_row"),
        (b"office_black_\xe9_old|https://images.example/1.jpg", INDEX, "index", "wrong_encoding"),
        (b"black_male_old|x", "images/black_male_old_1.jpg", "index", "malformed_name"),
        (b"moon_black_male_old|x", "images/moon_black_male_old_1.jpg", "labels", "unknown_label"),
        (b"office_martian_male_old|x", "images/office_martian_male_old_1.jpg", "labels", "unknown_label"),
        (b"office_black_man_old|x", "images/office_black_man_old_1.jpg", "labels", "unknown_label"),
        (b"office_black_male_Old|x", "images/office_black_male_Old_1.jpg", "labels", "unknown_label"),
        (b"office_black_male_old_|x", "images/office_black_male_old__1.jpg", "labels", "unknown_label"),
        (b"../../x_black_male_old|x", "images/../../x_black_male_old_1.jpg", "labels", "unknown_label"),
    ],
)
def test_one_bad_line_is_quarantined_and_the_others_keep_their_positions(
    line: bytes, path: str, stage: str, code: str, tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    first, last = "forest_indian_male_young", "gun_range_black_male_young"
    text = f"{first}|x\n".encode() + line + f"\n\n{last}|a|b\n".encode()
    ingested = read(written(tmp_path, text, {f"{first}_0.jpg": jpeg(0), f"{last}_2.jpg": jpeg(2)}))
    assert ingested.records["path"].to_list() == [f"images/{first}_0.jpg", f"images/{last}_2.jpg"]
    assert refused(ingested) == [(path, 2, stage, code)]
    assert ingested.quarantine["found"][0]
    assert ingested.quarantine["expected"][0]
    assert f"{INDEX}, line 2" in ingested.quarantine["message"][0]


def test_without_list_or_images_the_hint_says_how_to_name_them(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"<scene>_<race>_<gender>_<age>_<position>"):
        read(tmp_path)
    (tmp_path / INDEX).write_text(EXCERPT)
    with pytest.raises(DatasetError, match=r"<scene>_<race>_<gender>_<age>_<position>"):
        read(tmp_path)
    (tmp_path / INDEX).write_text("\n")
    (tmp_path / "images").mkdir()
    with pytest.raises(DatasetError, match="names no image"):
        read(tmp_path)


def test_images_linked_from_outside_are_not_listed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / INDEX).write_text(EXCERPT)
    (root / "images").symlink_to(outside, target_is_directory=True)
    with pytest.raises(DatasetError, match="leads out"):
        read(root)


def test_the_real_list_is_read_whole(tmp_path: Path, real_file: Callable[[str], Path]) -> None:
    root = written(tmp_path, real_file(f"pata/{INDEX}").read_bytes(), {})
    reader = reader_for("pata")
    entries = [item for item in reader.entries(root) if isinstance(item, Entry)]
    assert len(entries) == read(root).listed == 4934
    labels = [reader.labels(entry.raw) for entry in entries]
    assert sum("_" in label["scene"] for label in labels) == 415
    assert Counter(label["race"] for label in labels) == {
        "black": 1024, "caucasian": 1033, "eastasian": 1095, "hispanic": 948, "indian": 834,
    }  # fmt: skip
    assert Counter(label["gender"] for label in labels) == {"woman": 2529, "man": 2405}
    assert Counter(label["age"] for label in labels) == {"young": 3748, "old": 1186}
    scenes = {age: {label["scene"] for label in labels if label["age"] == age} for age in ("young", "old")}
    assert scenes["old"] == set(row_filter("pata-both-ages").conditions["scene"]["values"])
    assert len(scenes["young"]) == 24
