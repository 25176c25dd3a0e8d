"""The CausalFace reader: folders and names say who, what is varied and how far."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from PIL import Image

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Entry, Refusal
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError
from plumbline.world import folders

LEVELS = {
    "age": ["0.8", "1.4", "2", "2.3", "2.6", "2.9", "3.2", "3.5", "3.8", "4.4"],
    "lighting": ["-1", "0", "1", "2", "3", "4", "5", "6"],
    "pose": ["-3", "-1.5", "0", "1.5", "3"],
    "smiling": ["-2.5", "-1.5", "-0.5", "0", "0.5", "1", "1.5", "2", "3", "4"],
}


def listed(root: Path, *paths: str) -> list[Entry | Refusal]:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return list(reader_for("causalface").entries(root))


@pytest.mark.parametrize(
    ("path", "dimension", "level"),
    [
        ("final_picked_age/seed_57460/asian_female_age_0.8_o2.png", "age", "0.8"),
        ("final_picked_age/seed_57460/asian_female_age_2.0_o2.png", "age", "2"),
        ("final_picked_lighting/seed_57460/asian_female_l_-1.png", "lighting", "-1"),
        ("final_picked_pose/seed_57460/asian_female_y_-1.5.png", "pose", "-1.5"),
        ("final_picked_pose/seed_57460/asian_female_y_0.0.png", "pose", "0"),
        ("final_picked_pose/seed_57460/asian_female_y_-0.0.png", "pose", "0"),
        ("final_picked_pose/seed_57460/asian_female_y_0.png", "pose", "0"),
        ("final_picked_smiling/seed_57460/asian_female_smiling_-2.5_o2.png", "smiling", "-2.5"),
        ("final_picked_smiling/seed_57460/asian_female_smiling_3_o2_corrected.png", "smiling", "3"),
    ],
)
def test_names_of_the_published_reader_give_the_labels(path: str, dimension: str, level: str, tmp_path: Path) -> None:
    (entry,) = listed(tmp_path, path)
    assert isinstance(entry, Entry)
    assert reader_for("causalface").labels(entry.raw) == {
        "gender": "woman", "race": "Asian", "dimension": dimension, "level": level, "set_id": "57460",
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "final_picked_age/seed_1/asian_age_0.8_o2.png",
        "final_picked_age/seed_1/asian_female_age_o2.png",
        "final_picked_age/seed_1/asian_female_age_0.8_o2.jpg",
        "final_picked_age/seed_1/asian_female_age_0.8_o3.png",
        "final_picked_age/seed_1/asian_female_y_0.0.png",
        "final_picked_pose/seed_1/asian_female_age_0.8_o2.png",
        "final_picked_age/seed_x/asian_female_age_0.8_o2.png",
        "final_picked_age/asian_female_age_0.8_o2.png",
        "asian_female_age_0.8_o2.png",
        "final_picked_age/seed_1/notes.txt",
    ],
)
def test_any_other_name_is_a_refusal_and_is_still_listed(path: str, tmp_path: Path) -> None:
    (item,) = listed(tmp_path, path)
    assert isinstance(item, Refusal)
    assert (item.code, item.path) == ("malformed_name", path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("final_picked_age/seed_1/asian_female_age_0.9_o2.png", "'age 0.9'"),
        ("final_picked_lighting/seed_1/asian_female_l_7.png", "'l 7'"),
        ("final_picked_pose/seed_1/asian_female_y_2.png", "'y 2'"),
        ("final_picked_age/seed_1/indian_female_age_0.8_o2.png", "'indian'"),
        ("final_picked_age/seed_1/asian_women_age_0.8_o2.png", "'women'"),
        ("final_picked_brightness/seed_1/asian_female_brightness_0.92.png", "'brightness'"),
    ],
)
def test_a_level_race_or_dimension_that_is_not_declared_is_unknown(
    path: str, found: str, tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    listed(tmp_path, path)
    (tmp_path / path).write_bytes(jpeg())
    quarantine = ingest(reader_for("causalface"), tmp_path, dataset="faces").quarantine
    assert quarantine.select("code", "stage", "found").rows() == [("unknown_label", "labels", found)]


def codes(items: list[Entry | Refusal]) -> dict[str, str | None]:
    return {item.path: item.code if isinstance(item, Refusal) else None for item in items}


def test_a_corrected_smile_takes_the_place_of_its_original_which_is_a_refusal(tmp_path: Path) -> None:
    folder = "final_picked_smiling/seed_1"
    items = listed(
        tmp_path,
        original := f"{folder}/black_male_smiling_0_o2.png",
        corrected := f"{folder}/black_male_smiling_0_o2_corrected.png",
        other := f"{folder}/black_male_smiling_1_o2.png",
    )
    assert codes(items) == {original: "superseded", corrected: None, other: None}
    assert isinstance(items[0], Refusal)
    assert items[0].expected == corrected


def test_what_is_no_face_is_not_superseded_either(tmp_path: Path) -> None:
    folder = "final_picked_smiling/seed_1"
    items = listed(tmp_path, f"{folder}/notes", f"{folder}/notes_corrected.png")
    assert set(codes(items).values()) == {"malformed_name"}
    assert len(items) == 2


def test_versions_without_background_are_refusals_even_where_the_face_is_not_there(tmp_path: Path) -> None:
    without = [
        "final_picked_age/seed_1/black_male_age_0.8_o2_rm_bg.png",
        "final_picked_lighting/seed_1/black_male_lighting_0_o2_rm_bg.png",
    ]
    assert codes(listed(tmp_path, *without[1:])) == {without[1]: "without_background"}
    kept = "final_picked_age/seed_1/black_male_age_0.8_o2.png"
    refused = dict.fromkeys(without, "without_background")
    assert codes(listed(tmp_path, kept, *without)) == {kept: None, **refused}
    odd = "final_picked_age/seed_1/notes_rm_bg.png"
    assert codes(listed(tmp_path, odd))[odd] == "malformed_name"


def test_one_picture_in_two_dimensions_has_a_row_in_each(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    paths = ["final_picked_lighting/seed_1/black_male_l_0.png", "final_picked_pose/seed_1/black_male_y_0.png"]
    listed(tmp_path, *paths)
    picture = io.BytesIO()
    Image.open(io.BytesIO(jpeg())).save(picture, "PNG")
    for path in paths:
        (tmp_path / path).write_bytes(picture.getvalue())
    ingested = ingest(reader_for("causalface"), tmp_path, dataset="faces")
    assert ingested.records.select("path", "dimension", "level").rows() == [
        (paths[0], "lighting", "0"),
        (paths[1], "pose", "0"),
    ]
    assert ingested.quarantine.is_empty()
    assert ingested.listed == ingested.records.height == 2


def test_an_empty_folder_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"final_picked_<dimension>/seed_<N>"):
        reader_for("causalface").entries(tmp_path)


def test_the_planted_design_is_crossed(tmp_path: Path) -> None:
    records = ingest(reader_for("causalface"), folders.ensure("causalface", tmp_path), dataset="faces").records
    assert records.height == 792
    cells = Counter(records.select("set_id", "race", "gender", "dimension", "level").iter_rows())
    assert set(cells.values()) == {1}
    assert len({cell[:3] for cell in cells}) == 4 * 3 * 2
    for dimension, levels in LEVELS.items():
        found = records.filter(dimension=dimension)["level"].value_counts()
        assert dict(found.iter_rows()) == dict.fromkeys(levels, 24)
    assert records.select(pl.col("split", "age", "age_group").is_null().all()).row(0) == (True,) * 3


def test_a_planted_person_differs_only_in_what_is_varied(tmp_path: Path) -> None:
    import numpy as np

    root = folders.ensure("causalface", tmp_path)

    def picture(path: str) -> np.ndarray:
        return np.asarray(Image.open(root / path), float)

    middle = picture("final_picked_lighting/seed_47180/white_male_l_3.png")
    bright = picture("final_picked_lighting/seed_47180/white_male_l_6.png")
    assert bright.mean() > 1.1 * middle.mean()
    front, side = (picture(f"final_picked_pose/seed_47180/white_male_y_{level}.png") for level in ("0.0", "3.0"))
    assert np.abs(np.roll(front, 6, axis=1) - side).max() <= 4
    sad, glad = (
        picture(f"final_picked_smiling/seed_47180/white_male_smiling_{level}_o2.png") for level in ("-2.5", "4")
    )
    assert np.abs(sad[:36] - glad[:36]).max() <= 4 < np.abs(sad[36:48] - glad[36:48]).max()
    another = picture("final_picked_pose/seed_57460/white_male_y_0.0.png")
    assert np.abs(front - another).mean() > 10
