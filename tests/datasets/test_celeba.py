"""The CelebA reader: attributes and partition as published, and every way in which they can disagree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plumbline.datasets.ingestion import folder_digest, ingest
from plumbline.datasets.records import Ingested
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError
from plumbline.statistics.clusters import cluster_codes

NAMES = "5_o_Clock_Shadow Arched_Eyebrows Male Smiling Young"

# First and further rows of list_attr_celeba.txt, five of its forty columns; spaces as they stand there.
ROWS = [
    "000001.jpg -1  1 -1  1  1",
    "000002.jpg -1 -1 -1  1  1",
    "000003.jpg -1 -1  1 -1  1",
    "000004.jpg -1 -1 -1 -1  1",
    "000007.jpg  1 -1  1 -1  1",
]
PARTITION = ["000001.jpg 0", "000002.jpg 0", "000003.jpg 0", "000004.jpg 1", "000007.jpg 2"]

Write = Callable[..., Path]


@pytest.fixture
def celeba(tmp_path: Path, jpeg: Callable[..., bytes]) -> Write:
    """Return a function that writes a CelebA folder; `count` is line 1, by default the right number."""

    def write(
        rows: list[str] = ROWS,
        partition: list[str] = PARTITION,
        *,
        count: str | None = None,
        names: str = NAMES,
        below: tuple[str, str, str] = ("", "", ""),
        ending: str = "\n",
        identities: list[str] | None = None,
    ) -> Path:
        root = tmp_path / "celeba"
        attributes, parts, images = (root / folder for folder in below)
        for folder in (attributes, parts, images / "img_align_celeba"):
            folder.mkdir(parents=True, exist_ok=True)
        text = ending.join([count or str(len(rows)), names, *rows, ""])
        (attributes / "list_attr_celeba.txt").write_bytes(text.encode())
        (parts / "list_eval_partition.txt").write_bytes(ending.join([*partition, ""]).encode())
        if identities is not None:
            (attributes / "identity_CelebA.txt").write_bytes(ending.join([*identities, ""]).encode())
        for number in (1, 2, 3, 4, 7):
            (images / f"img_align_celeba/{number:06}.jpg").write_bytes(jpeg(number))
        return root

    return write


def read(root: Path) -> Ingested:
    ingested = ingest(reader_for("celeba"), root, dataset="celeba")
    assert ingested.records.height + ingested.quarantine.height == ingested.listed
    return ingested


def refused(ingested: Ingested) -> list[tuple[object, ...]]:
    return ingested.quarantine.select("path", "line", "stage", "code").rows()


@pytest.mark.parametrize("below", [("", "", ""), ("Anno", "Eval", "Img")])
@pytest.mark.parametrize("ending", ["\n", "\r\n", " \n\n"])
def test_published_rows_become_records(below: tuple[str, str, str], ending: str, celeba: Write) -> None:
    ingested = read(celeba(below=below, ending=ending))
    records = ingested.records
    assert ingested.listed == records.height == 5
    images = f"{below[2]}/img_align_celeba".removeprefix("/")
    assert records["path"].to_list() == [f"{images}/{n:06}.jpg" for n in (1, 2, 3, 4, 7)]
    assert records["gender"].to_list() == ["woman", "woman", "man", "woman", "man"]
    assert records["split"].to_list() == ["train", "train", "train", "val", "test"]
    assert all(records[column].is_null().all() for column in ("race", "age", "occupation", "scene"))


def test_a_byte_order_mark_changes_nothing(celeba: Write) -> None:
    root = celeba()
    for name in ("list_attr_celeba.txt", "list_eval_partition.txt"):
        (root / name).write_bytes(b"\xef\xbb\xbf" + (root / name).read_bytes())
    assert read(root).records.height == 5


@pytest.mark.parametrize(
    ("row", "path", "code"),
    [
        ("000003.jpg -1 -1  1 -1", "list_attr_celeba.txt", "ragged_row"),
        ("000003.jpg -1 -1  1 -1  1  1", "list_attr_celeba.txt", "ragged_row"),
        ("000003.jpg", "list_attr_celeba.txt", "ragged_row"),
        ("000003.jpg -1 -1  0 -1  1", "img_align_celeba/000003.jpg", "unknown_label"),
        ("000003.jpg -1 -1 +1 -1  1", "img_align_celeba/000003.jpg", "unknown_label"),
    ],
)
def test_one_bad_row_is_quarantined_with_its_line(row: str, path: str, code: str, celeba: Write) -> None:
    ingested = read(celeba([*ROWS[:2], row, *ROWS[3:]]))
    stage = "index" if code == "ragged_row" else "labels"
    assert refused(ingested) == [(path, 5, stage, code)]
    assert "list_attr_celeba.txt, line 5" in ingested.quarantine["message"][0]
    assert ingested.records.height == 4


def test_a_line_that_is_not_utf_8_spoils_no_other(celeba: Write) -> None:
    root = celeba()
    index = root / "list_attr_celeba.txt"
    index.write_bytes(index.read_bytes().replace(b"000003.jpg", b"00000\xe9.jpg"))
    ingested = read(root)
    assert refused(ingested) == [
        ("list_attr_celeba.txt", 5, "index", "wrong_encoding"),
        ("img_align_celeba/000003.jpg", 3, "index", "missing_attributes"),
    ]
    assert "\\xe9" in ingested.quarantine["found"][0]


def test_a_name_listed_twice_is_kept_once_or_not_at_all(celeba: Write) -> None:
    same = read(celeba([*ROWS, ROWS[0]]))
    assert refused(same) == [("img_align_celeba/000001.jpg", 8, "duplicates", "duplicate_row")]
    assert same.records.height == 5
    other = read(celeba([*ROWS, ROWS[0].replace(" -1  1 -1", " -1  1  1")]))
    assert {(line, code) for _, line, _, code in refused(other)} == {
        (3, "conflicting_duplicate"),
        (8, "conflicting_duplicate"),
    }
    assert other.records.height == 4


@pytest.mark.parametrize(
    ("partition", "row"),
    [
        (PARTITION[:4], ("img_align_celeba/000007.jpg", 7, "index", "missing_partition")),
        ([*PARTITION, "000001.jpg 2"], ("img_align_celeba/000001.jpg", 3, "index", "conflicting_partition")),
        ([*PARTITION[:4], "000007.jpg 3"], ("img_align_celeba/000007.jpg", 7, "index", "wrong_split")),
        ([*PARTITION, "000009.jpg 1"], ("img_align_celeba/000009.jpg", 6, "index", "missing_attributes")),
        ([*PARTITION, "000001.jpg"], ("list_eval_partition.txt", 6, "index", "ragged_row")),
        ([*PARTITION, "000001.jpg 0 0"], ("list_eval_partition.txt", 6, "index", "ragged_row")),
    ],
)
def test_what_only_one_file_says_or_both_say_differently_is_quarantined(
    partition: list[str], row: tuple[object, ...], celeba: Write
) -> None:
    ingested = read(celeba(partition=partition))
    assert refused(ingested) == [row]
    refusal = ingested.quarantine.row(0, named=True)
    index = "list_eval_partition.txt" if row[3] in ("missing_attributes", "ragged_row") else "list_attr_celeba.txt"
    assert f"{index}, line {row[1]}" in refusal["message"]
    assert refusal["found"]
    assert refusal["expected"]


def test_a_partition_that_says_the_same_twice_says_nothing_new(celeba: Write) -> None:
    assert read(celeba(partition=[*PARTITION, PARTITION[0]])).quarantine.is_empty()


@pytest.mark.parametrize("name", ["../000001.jpg", "/etc/000001.jpg", "C:\\000001.jpg", "a/../../000001.jpg"])
def test_a_name_that_leads_out_is_refused_as_it_is_listed(name: str, celeba: Write) -> None:
    ingested = read(celeba([*ROWS, f"{name} 1 1 1 1 1"], [*PARTITION, f"{name} 0"]))
    assert refused(ingested) == [(name, 8, "path", "path_outside_root")]


@pytest.mark.parametrize("count", ["4", "6", "202599", "five", "5 5", "-5", "²", "000001.jpg -1", "9" * 5000])
def test_a_count_that_is_not_that_of_the_lines_is_an_error_of_the_whole(count: str, celeba: Write) -> None:
    with pytest.raises(DatasetError, match="line 1") as caught:
        read(celeba(count=count))
    assert caught.value.where == "list_attr_celeba.txt"
    assert "line 1" in str(caught.value.hint)
    assert len(str(caught.value.found)) <= 200


@pytest.mark.parametrize("names", ["Smiling Young", "Male Male Young Bald Blurry", ROWS[0]])
def test_names_without_male_are_an_error_of_the_whole(names: str, celeba: Write) -> None:
    with pytest.raises(DatasetError, match="line 2") as caught:
        read(celeba(names=names))
    assert "Male" in str(caught.value.expected)


@pytest.mark.parametrize("content", [b"", b"5\n", b"0\nMale\n", b"\xff\n" + NAMES.encode()])
def test_an_attribute_file_without_its_first_lines_or_rows_is_an_error(content: bytes, celeba: Write) -> None:
    root = celeba()
    (root / "list_attr_celeba.txt").write_bytes(content)
    with pytest.raises(DatasetError):
        read(root)


@pytest.mark.parametrize("part", ["list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba"])
def test_a_part_that_is_not_there_is_named_with_what_belongs_there(part: str, celeba: Write) -> None:
    root = celeba()
    (root / part).rename(root / "elsewhere")
    with pytest.raises(DatasetError, match=f"no {part}") as caught:
        read(root)
    assert "Anno, Eval and Img" in str(caught.value.expected)
    assert caught.value.hint


def test_an_index_that_leads_out_or_cannot_be_read_is_an_error(celeba: Write, tmp_path: Path) -> None:
    root = celeba()
    (root / "list_attr_celeba.txt").rename(tmp_path / "secret.txt")
    (root / "list_attr_celeba.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(DatasetError, match="leads out"):
        read(root)
    (root / "list_attr_celeba.txt").unlink()
    (root / "list_attr_celeba.txt").mkdir()
    with pytest.raises(DatasetError, match="cannot be read"):
        read(root)


def test_the_folder_digest_follows_both_text_files(celeba: Write) -> None:
    reader = reader_for("celeba")
    digests = [
        folder_digest(reader, celeba()),
        folder_digest(reader, celeba([*ROWS[:4], ROWS[4].replace("1", "-1", 1)])),
        folder_digest(reader, celeba(partition=[*PARTITION[:4], "000007.jpg 1"])),
    ]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("below", [("", "", ""), ("Anno", "Eval", "Img")])
def test_pictures_of_a_person_are_a_set_where_the_identity_file_says_so(
    celeba: Write, below: tuple[str, str, str]
) -> None:
    without = celeba(below=below)
    assert read(without).records["set_id"].null_count() == 5
    before = folder_digest(reader_for("celeba"), without)
    root = celeba(below=below, identities=["000001.jpg 2880", "000002.jpg 2937", "000003.jpg 2880", "000004.jpg 8692"])
    found = read(root)
    assert found.records["set_id"].to_list() == ["2880", "2937", "2880", "8692", None]
    assert cluster_codes(found.records) is not None and folder_digest(reader_for("celeba"), root) != before


def test_faults_of_the_identity_file_are_refused(celeba: Write) -> None:
    found = read(celeba(identities=["000001.jpg 1", "000001.jpg 2", "000002.jpg", "000003.jpg 3"]))
    assert sorted(found.quarantine["code"]) == ["conflicting_identity", "ragged_row"]
    assert found.records["set_id"].to_list() == [None, "3", None, None]
