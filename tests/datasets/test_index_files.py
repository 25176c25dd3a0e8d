"""Index files of every reader: plain files inside the root and nothing else, with lines that end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from plumbline.datasets import indexes as text_index_module
from plumbline.datasets.indexes import index_file, raw_lines
from plumbline.datasets.ingestion import folder_digest, ingest
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError
from plumbline.world import folders

INDEXES = {
    "celeba": ("list_attr_celeba.txt", "list_eval_partition.txt"),
    "fairface": ("fairface_label_train.csv", "fairface_label_val.csv"),
    "pata": ("pata_fairness.files.lst",),
}
EACH = [(kind, name) for kind, names in INDEXES.items() for name in names]

PUT = {
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link out": lambda path: path.symlink_to(path.parent.parent / "outside"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.fixture(scope="session")
def planted(planted_base: Path) -> Path:
    return planted_base


def copied(kind: str, planted: Path, to: Path) -> Path:
    """Return a copy of a planted folder, of links to the same files."""
    return shutil.copytree(folders.ensure(kind, planted), to / kind, copy_function=os.link)


def fail_if_waited(path: Path, *_: object, **__: object) -> None:
    pytest.fail(f"{path.name} was opened: a pipe would be waited for")


@pytest.mark.parametrize("instead", PUT)
@pytest.mark.parametrize(("kind", "name"), EACH)
def test_anything_but_a_plain_file_inside_is_an_error_and_is_not_opened(
    kind: str, name: str, instead: str, planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copied(kind, planted, tmp_path)
    (root.parent / "outside").write_text("a secret\n")
    (root / name).unlink()
    PUT[instead](root / name)
    really_open = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, *args, **options: (fail_if_waited if path.name == name else really_open)(path, *args, **options),
    )
    reader = reader_for(kind)
    for read in (
        lambda: ingest(reader, root, dataset="d"),
        lambda: folder_digest(reader, root),
        lambda: reader.entries(root),
    ):
        with pytest.raises(DatasetError) as caught:
            read()
        assert name in str(caught.value)


@pytest.mark.parametrize("instead", PUT)
def test_what_stands_in_the_place_of_an_index_is_named(instead: str, tmp_path: Path) -> None:
    root = (tmp_path / "root").resolve()
    root.mkdir()
    (tmp_path / "outside").write_text("a secret\n")
    PUT[instead](root / "t.csv")
    with pytest.raises(DatasetError) as caught:
        index_file(root, "t.csv")
    words = {
        "a pipe": "a pipe or a device",
        "a folder": "a folder",
        "a device": "leads out",
        "a link out": "leads out",
        "a link to nothing": "No such file",
    }
    assert words[instead] in str(caught.value)
    assert caught.value.where == "t.csv"
    assert caught.value.expected


def test_a_link_that_stays_inside_is_followed(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "real.csv").write_text("x\n")
    (root / "t.csv").symlink_to("real.csv")
    assert index_file(root, "t.csv") == root / "real.csv"


@pytest.mark.parametrize(("kind", "name"), EACH)
@pytest.mark.parametrize("lines_before", [0, 2])
def test_a_line_without_end_is_an_error_with_its_number_and_is_not_read_to_its_end(
    kind: str, name: str, lines_before: int, planted: Path, tmp_path: Path
) -> None:
    root = copied(kind, planted, tmp_path)
    index = root / name
    lines = index.read_bytes().splitlines(keepends=True)
    index.unlink()
    index.write_bytes(b"".join(lines[:lines_before]))
    # Gigabytes in what the file claims, none on the disk.
    os.truncate(index, index.stat().st_size + (64 << 30))
    with pytest.raises(DatasetError, match="too long") as caught:
        reader_for(kind).entries(root)
    assert caught.value.where == f"{name}, line {lines_before + 1}"
    assert str(text_index_module.MAX_LINE_BYTES) in str(caught.value.expected)
    assert caught.value.hint


def test_the_longest_line_is_read_and_one_byte_more_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_index_module, "MAX_LINE_BYTES", 10)
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xef\xbb\xbfa\n123456789\n1234567890")
    assert [tuple(line) for line in raw_lines(path, "t")] == [(1, b"a\n"), (2, b"123456789\n"), (3, b"1234567890")]
    path.write_bytes(b"a\n1234567890\nb\n")
    with pytest.raises(DatasetError, match="t, line 2"):
        list(raw_lines(path, "t"))


def test_an_index_that_fails_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __enter__(self) -> Failing:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def readline(self, _: int) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", lambda *_: Failing())
    with pytest.raises(DatasetError, match="Input/output error"):
        list(raw_lines(tmp_path / "t", "t"))


def test_a_byte_order_mark_counts_at_the_beginning_only(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
    assert [line.data for line in raw_lines(tmp_path / "t", "t")] == [b"a\n", b"\xef\xbb\xbfb\n"]
