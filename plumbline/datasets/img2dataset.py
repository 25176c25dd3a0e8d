"""Image-text pairs as img2dataset writes them: shards of tars, of folders of files, or of Parquet with the pictures.

Source of the layouts: `img2dataset/writer.py` and `logger.py` of github.com/rom1504/img2dataset. A shard is named by a
number: `00000.tar` (the output format `webdataset`; members `000000000.jpg`, `.txt` and `.json`), the folder `00000/`
(the format `files`) or `00000.parquet` with a column of encoded pictures (the format `parquet`). Beside a tar or folder
lies `00000.parquet`, which lists every address that was asked for with its `status`, and `00000_stats.json`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.datasets.indexes import (
    Row,
    dataset_root,
    described,
    index_file,
    read_table_rows,
    refuse_line,
    shown_in,
    table_schema,
    unreadable_index,
)
from plumbline.datasets.records import Entry, Reader, Refusal, caption_text, load_declaration, printable
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.parquet import FORMAT_COLUMNS, format_column
from plumbline.images.tars import TarMember, read_member, tar_index

MAX_PAIRS = 5_000_000
"""Over all shards: each becomes a record."""

MAX_TEXT_BYTES, MAX_JSON_BYTES = 1 << 16, 1 << 22

SUCCESS = "success"
"""The `status` of a picture that was got; the others are `failed_to_download` and `failed_to_resize`."""

_SHARD = re.compile(r"[0-9]+")
_LONGEST_NAME = 4_096  # no system has a longer path
_MEMBER = re.compile(r"(?P<key>(?:.*/|)[^./][^.]*)\.(?P<suffix>[^/]*)")
_IMAGES = ("jpg", "jpeg", "png", "webp")
_OF_A_CAPTION = ("file_too_large", "malformed_row", "wrong_encoding")
"""Refusals of samples that have a picture."""
_COLUMNS = ("key", "status", "error_message", "url", "caption", "txt")


class Img2Dataset(Reader):
    """Reader of image-text pairs as img2dataset writes them; a tar is read member by member.

    An input is an address that was asked for: what could not be got (`status` other than `success`), has no caption,
    or has a key that came before is quarantined with its row. The caption is that of `.txt`, else of `.json`, else of
    the table. A tar without a table beside it, as others write for webdataset, is read too.
    """

    declaration = load_declaration("img2dataset")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return tars, tables and statistics: captions lie in all of them.

        Raises
        ------
        DatasetError
            If there is no shard.
        """
        names = [name for shard in _shards(dataset_root(root)) for name in shard.files]
        if not names:
            raise DatasetError(
                "the folder holds no shard of img2dataset",
                where=root,
                found=shown_in(dataset_root(root)),
                expected="00000.tar, or 00000.parquet beside the folder 00000 or with a column of pictures",
                hint="name the folder that img2dataset wrote into (its `output_folder`)",
            )
        return names

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry an address, shard by shard.

        Raises
        ------
        DatasetError
            If there is no shard, a table cannot be read, or they list nothing, or more than `MAX_PAIRS`.
        """
        folder = dataset_root(root)
        self.index_files(folder)
        listed: list[Entry | Refusal] = []
        for shard in _shards(folder):
            for item in shard.listed():
                listed.append(item)
                if len(listed) > MAX_PAIRS:
                    raise DatasetError(
                        "the folder holds too many pairs",
                        where=root,
                        found=f"more than {MAX_PAIRS}",
                        expected=f"at most {MAX_PAIRS}",
                        hint="move some shards into a folder of their own, and name that as a dataset",
                    )
        if not listed:
            raise DatasetError(
                "the shards list no pair",
                where=root,
                found="no pair of image and caption",
                expected="at least one",
                hint="check that img2dataset has finished",
            )
        return listed

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Return the caption."""
        return {"caption": caption_text(raw["caption"])}


def _shards(root: Path) -> list[_Shard]:
    names = {name for name in os.listdir(root) if not name.startswith(".")}  # noqa: PTH208
    numbered = {Path(name).stem for name in names if name.endswith(".parquet")}
    tars = {Path(name).stem for name in names if name.endswith(".tar")}
    return [_Shard(name, root, names) for name in sorted(tars | {n for n in numbered if _SHARD.fullmatch(n)})]


@dataclass(frozen=True)
class _Shard:
    """One shard: its name without suffix, its folder, and what lies in that."""

    name: str
    root: Path
    names: set[str]

    @property
    def tar(self) -> str | None:
        return f"{self.name}.tar" if f"{self.name}.tar" in self.names else None

    @property
    def table(self) -> str | None:
        return f"{self.name}.parquet" if f"{self.name}.parquet" in self.names else None

    @property
    def stats(self) -> str | None:
        return f"{self.name}_stats.json" if f"{self.name}_stats.json" in self.names else None

    @property
    def files(self) -> list[str]:
        return [name for name in (self.tar, self.table, self.stats) if name is not None]

    def listed(self) -> Iterator[Entry | Refusal]:
        """Yield everything that the shard lists, in the order of its samples, then what its table adds."""
        got = 0
        for item in self._of_table() if self.tar is None else self._of_tar(self.tar):
            got += isinstance(item, Entry) or item.code in _OF_A_CAPTION
            yield item
        if self.stats is not None:
            yield from self._contradiction(self.stats, got)

    # --- The format `webdataset`

    def _of_tar(self, name: str) -> Iterator[Entry | Refusal]:
        archive, rows, refused = index_file(self.root, name), dict[str, Row](), list[Refusal]()
        for row in self._rows():
            if isinstance(row, Row) and row.values["key"] not in rows:
                rows[row.values["key"]] = row
            else:
                refused.append(row if isinstance(row, Refusal) else self._twice(row, f"{name}/{row.values['key']}"))
        try:
            index = tar_index(archive)
        except OSError as error:
            raise unreadable_index(name, error.strerror) from error
        keys: set[str] = set()
        for key, members in _samples(index.members):
            line = len(keys) + 1
            if key is None or key in keys:
                yield from _misplaced(name, key, members, line)
                continue
            keys.add(key)
            yield _of_members(archive, name, key, members, line, rows.get(key))
        if index.damage is not None:
            what, expected = "the tar cannot be read to its end", "a whole tar"
            yield refuse_line("truncated", what, name, len(keys) + 1, index.damage, expected)
        yield from refused
        yield from (self._not_got(row, f"{name}/{key}") for key, row in rows.items() if key not in keys)

    # --- The formats `files` and `parquet`, and the rows beside a tar

    def _of_table(self) -> Iterator[Entry | Refusal]:
        name = str(self.table)
        schema = table_schema(index_file(self.root, name), name=name)
        inside = format_column(schema) is not None
        if not inside and not (self.root / self.name).is_dir():
            raise DatasetError(
                "a table lists pictures that are not here",
                where=name,
                found=described(schema),
                expected=f"{self.name}.tar or the folder {self.name}, or a column {' or '.join(FORMAT_COLUMNS)}",
                hint="this is a list of addresses: run img2dataset on it, and name its `output_folder`",
            )
        keys: set[str] = set()
        for row in self._rows():
            if isinstance(row, Refusal):
                yield row
                continue
            key, got = row.values["key"], row.values.get("status", SUCCESS) == SUCCESS
            path = f"{name}/{row.line - 1}" if inside else self._file_of(key)
            if key in keys:
                yield self._twice(row, path)
            elif not got:
                yield self._not_got(row, path)
            else:
                caption = row.values.get("txt") or row.values.get("caption") or ""
                yield Entry(path, None, {"caption": caption}, name, row.line)
            keys.add(key)

    def _file_of(self, key: str) -> str:
        """Return the picture of a key in the shard's folder; the first format where there is none."""
        paths = [f"{self.name}/{key}.{suffix}" for suffix in FORMAT_COLUMNS]
        # Not `Path.exists`, which raises where a name is longer than any file's.
        return next((path for path in paths if os.path.exists(self.root / path)), paths[0])  # noqa: PTH110

    def _twice(self, row: Row, path: str) -> Refusal:
        what, key = "the key comes twice in the table", printable(row.values["key"])
        return refuse_line("duplicate_key", what, str(self.table), row.line, key, "each key once", path=path)

    def _not_got(self, row: Row, path: str) -> Refusal:
        name, status = str(self.table), row.values.get("status", SUCCESS)
        if status == SUCCESS:
            what, value = "the table says that this picture was got, and the shard lacks it", row.values.get("url", "")
            return refuse_line("missing_file", what, name, row.line, printable(value), "a picture", path=path)
        answer = ": ".join(filter(None, (status, row.values.get("error_message"), row.values.get("url"))))
        return refuse_line(
            "not_downloaded",
            "img2dataset did not get this picture",
            name,
            row.line,
            printable(answer),
            SUCCESS,
            path=path,
        )

    def _rows(self) -> Iterator[Row | Refusal]:
        """Yield the rows of the shard's table, if it has one."""
        if self.table is None:
            return
        path = index_file(self.root, self.table)
        schema = table_schema(path, name=self.table)
        columns = [name for name in _COLUMNS if schema.names.count(name) == 1]
        if "key" not in columns:
            raise DatasetError(
                "a table of img2dataset lacks its column `key`",
                where=self.table,
                found=described(schema),
                expected="columns key, status, error_message, url and caption",
                hint="a table of addresses alone belongs into another folder than what img2dataset wrote",
            )
        yield from read_table_rows(path, name=self.table, columns=columns)

    def _contradiction(self, name: str, got: int) -> Iterator[Refusal]:
        """Refuse, as one input, statistics that count other successes than the shard has pictures."""
        path = index_file(self.root, name)
        try:
            data = path.read_bytes() if path.stat().st_size <= MAX_JSON_BYTES else b""
        except OSError as error:
            raise unreadable_index(name, error.strerror) from error
        try:
            stats = json.loads(data)
        except (ValueError, RecursionError):
            stats = None
        successes = stats.get("successes") if isinstance(stats, dict) else None
        if not isinstance(successes, int) or isinstance(successes, bool):
            what, expected = "the statistics of the shard do not read", "JSON with `count` and `successes`"
            yield refuse_line("malformed_row", what, name, 1, printable(repr(data[:80])), expected)
        elif successes < got or successes > got:
            what = "the statistics of the shard count other successes than it has pictures"
            yield refuse_line("contradicting_totals", what, name, 1, f"{successes} successes", f"{got}, as are here")


def _misplaced(name: str, key: str | None, members: Sequence[TarMember], line: int) -> Iterator[Refusal]:
    """Refuse members that are part of no sample: one refusal a member, or one for a whole key that came before."""
    if key is not None:
        what, expected = "the key comes twice in the tar", "each key once, its members one after the other"
        yield refuse_line("duplicate_key", what, name, line, printable(key), expected, path=f"{name}/{key}")
        return
    for member in members:
        plain = member.kind == "file"
        code = "malformed_name" if plain else "not_a_file"
        what = "the name does not give a key" if plain else "the member is not a plain file"
        value = printable(ascii(member.name)) if plain else member.kind
        yield refuse_line(code, what, name, line, value, "KEY.jpg, KEY.txt or KEY.json", path=f"{name}/{member.name}")


def _of_members(
    archive: Path, name: str, key: str, members: Sequence[TarMember], line: int, row: Row | None
) -> Entry | Refusal:
    by_suffix: dict[str, TarMember] = {}
    for member in members:
        suffix = member.name.rpartition("/")[2].partition(".")[2].lower()
        if suffix in by_suffix:
            what, expected = "a sample has two members of one name", "each once"
            value = printable(ascii(member.name))
            return refuse_line("duplicate_key", what, name, line, value, expected, path=f"{name}/{key}")
        by_suffix[suffix] = member
    image = next((by_suffix[suffix] for suffix in _IMAGES if suffix in by_suffix), None)
    if image is None:
        what, value = "the sample has no picture", ", ".join(sorted(by_suffix))
        expected = f"one of {', '.join(_IMAGES)}"
        return refuse_line("missing_file", what, name, line, printable(value), expected, path=f"{name}/{key}")
    path = f"{name}/{image.name}"
    if row is not None and row.values.get("status", SUCCESS) != SUCCESS:
        what, value = "the table says that this picture was not got", row.values["status"]
        return refuse_line("contradicting_status", what, name, line, printable(value), SUCCESS, path=path)
    try:
        caption = _caption_of(archive, by_suffix, row)
    except ImageRejected as error:
        return refuse_line(error.code, error.what, name, line, str(error.found), str(error.expected), path=path)
    return Entry(path, None, {"caption": caption}, name, line)


def _samples(members: Sequence[TarMember]) -> Iterator[tuple[str | None, list[TarMember]]]:
    """Group members that follow each other by key, as webdataset does; key None for what has none."""
    together: list[TarMember] = []
    current: str | None = None
    for member in members:
        if member.kind == "folder":
            continue
        named = member.kind == "file" and len(member.name) <= _LONGEST_NAME
        match = _MEMBER.fullmatch(member.name) if named else None
        key = match["key"] if match else None
        if together and (key != current or key is None):
            yield current, together
            together = []
        current = key
        together.append(member)
    if together:
        yield current, together


def _caption_of(archive: Path, by_suffix: Mapping[str, TarMember], row: Row | None) -> str:
    """Return the caption of a sample: of its text, else of its JSON, else of the table.

    Raises
    ------
    ImageRejected
        If a member of the sample cannot be read as text.
    """
    if "txt" in by_suffix and (text := _text(archive, by_suffix["txt"], MAX_TEXT_BYTES)).strip():
        return text
    if "json" in by_suffix:
        try:
            about = json.loads(_text(archive, by_suffix["json"], MAX_JSON_BYTES))
        except (ValueError, RecursionError) as error:
            what, expected = "the sample's JSON does not read", "a JSON object"
            raise ImageRejected("malformed_row", what, found=printable(str(error)), expected=expected) from error
        caption = about.get("caption") if isinstance(about, dict) else None
        if isinstance(caption, str) and caption.strip():
            return caption
    return (row.values.get("caption") if row is not None else None) or ""


def _text(archive: Path, member: TarMember, max_bytes: int) -> str:
    data = read_member(str(archive), member.name, max_bytes=max_bytes)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        start = repr(data[:80])[1:]
        raise ImageRejected("wrong_encoding", "a member is not UTF-8", found=start, expected="UTF-8") from error
