"""CelebA: aligned faces beside two text files, attributes and partition, and a third that says who is shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from plumbline.datasets.indexes import Line, dataset_root, leads_out, read_lines, refuse_line
from plumbline.datasets.records import Declaration, Entry, Reader, Refusal, load_declaration, printable
from plumbline.errors import DatasetError

# Where the parts lie: as most copies have them, and as the authors' own folders do.
_ATTRIBUTES = ("list_attr_celeba.txt", "Anno/list_attr_celeba.txt")
_PARTITION = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
_IDENTITIES = ("identity_CelebA.txt", "Anno/identity_CelebA.txt")
_IMAGES = ("img_align_celeba", "Img/img_align_celeba")
_EXPECTED = f"{_ATTRIBUTES[0]}, {_PARTITION[0]} and the folder {_IMAGES[0]}; also below Anno, Eval and Img"

# Python refuses to read a number of thousands of digits.
_LONGEST_COUNT = 9

_PERSON = "identity"
"""Key of the attribute values that come from the identity file; no attribute of CelebA is called so."""

_SPLITS = {"0": "train", "1": "val", "2": "test"}


# Image -> each value that a file of two columns gives it -> the first line that does.
_Places = dict[str, dict[str, int]]


class CelebA(Reader):
    """Reader of CelebA (Liu, Luo, Wang and Tang, ICCV 2015).

    The attribute file is the index; the partition gives the split. An image that only one of the two names is
    quarantined (`missing_partition`, `missing_attributes`), and so is one with two splits or two identities.

    Where the authors' identity file is present, the pictures of a person are a set: most have some twenty, which are
    not independent.
    """

    declaration: Declaration = load_declaration("celeba")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the attribute file and the partition, and the identity file if it is there.

        Raises
        ------
        DatasetError
            If one is not there.
        """
        folder = dataset_root(root)
        identities = [name for name in _IDENTITIES if (folder / name).exists()][:1]
        return [*(_present(folder, names) for names in (_ATTRIBUTES, _PARTITION)), *identities]

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a line of the attribute file, then what stands in the partition alone.

        Raises
        ------
        DatasetError
            If a part is not there, the count in line 1 is not the number of lines that follow, line 2 lacks
            an attribute that is read, or nothing is listed.
        """
        folder = dataset_root(root)
        attributes, partition, *identities = self.index_files(folder)
        images = _present(folder, _IMAGES)
        names, rows = self._attributes(folder, attributes)
        places, refused = _pairs(folder, partition, "name split")
        persons: _Places = {}
        for index in identities:
            persons, ragged = _pairs(folder, index, "name identity")
            refused += ragged
        listed = [
            row if isinstance(row, Refusal) else self._entry(attributes, row, names, places, persons, images)
            for row in rows
        ]
        known = {row.text.split()[0] for row in rows if isinstance(row, Line)}
        what, expected = "the partition lists an image that the attributes do not", f"a line in {attributes}"
        alone = [
            refuse_line(
                "missing_attributes", what, partition, min(lines.values()), name, expected, path=f"{images}/{name}"
            )
            for name, lines in places.items()
            if name not in known
        ]
        return [*listed, *refused, *alone]

    def _attributes(self, folder: Path, index: str) -> tuple[list[str], list[Line | Refusal]]:
        lines = read_lines(folder, index)
        first, second = (line.text if isinstance(line := next(lines, None), Line) else "" for _ in range(2))
        if not (first.isascii() and first.isdigit() and len(first) <= _LONGEST_COUNT):
            _unusable("line 1 is not the number of images", index, first[:200] or "nothing", "a whole number")
        names, wanted = second.split(), self.declaration.index_columns
        if not set(wanted) <= set(names) or len(set(names)) < len(names):
            actual, expected = second[:200] or "nothing that can be read", f"names, {', '.join(wanted)} among them"
            _unusable("line 2 does not name the attributes", index, actual, expected)
        rows = list(lines)
        if len(rows) != int(first) or not rows:
            _unusable("the count in line 1 is not the number of images listed", index, len(rows), int(first))
        return names, rows

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Map the gender; the set is the person, where the identity file names one.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        person = {"set_id": raw[_PERSON]} if _PERSON in raw else {}
        return {**super().labels(raw), **person}

    def _entry(
        self, index: str, row: Line, names: Sequence[str], places: _Places, persons: _Places, images: str
    ) -> Entry | Refusal:
        name, *values = row.text.split()
        if len(values) != len(names):
            actual = f"{1 + len(values)} fields: {row.text}"
            expected = f"{1 + len(names)} fields: the name and {len(names)} attributes"
            what = "the line has another number of fields"
            return refuse_line("ragged_row", what, index, row.number, actual, expected)
        of_all = dict(zip(names, values, strict=True))
        raw = {column: of_all[column] for column in self.declaration.index_columns}
        if leads_out(name):
            # Left as it is listed, for `inside` to refuse.
            return Entry(name, None, raw, index, row.number)
        path, codes, person = f"{images}/{name}", sorted(places.get(name, ())), sorted(persons.get(name, ()))
        raw |= {_PERSON: person[0]} if person else {}
        if len(person) > 1:
            what, actual = "the identity file names several persons for this image", " and ".join(person)
            return refuse_line("conflicting_identity", what, index, row.number, actual, "one person", path=path)
        if len(codes) == 1 and codes[0] in _SPLITS:
            return Entry(path, _SPLITS[codes[0]], raw, index, row.number)
        if not codes:
            code, what = "missing_partition", "the partition does not list this image"
        elif len(codes) > 1:
            code, what = "conflicting_partition", "the partition lists this image with different values"
        else:
            code, what = "wrong_split", "the partition's value is unknown"
        actual = " and ".join(codes) or "nothing"
        return refuse_line(code, what, index, row.number, actual, "one of 0 train, 1 val, 2 test", path=path)


def _pairs(folder: Path, index: str, fields_of: str) -> tuple[_Places, list[Refusal]]:
    """Return the value of each image in a file of two columns, and its other lines."""
    places: defaultdict[str, dict[str, int]] = defaultdict(dict)
    refused: list[Refusal] = []
    for line in read_lines(folder, index):
        fields = [] if isinstance(line, Refusal) else line.text.split()
        if isinstance(line, Refusal):
            refused.append(line)
        elif len(fields) == 2:
            places[fields[0]].setdefault(fields[1], line.number)
        else:
            actual, what = f"{len(fields)} fields: {line.text}", "the line has another number of fields"
            refused.append(refuse_line("ragged_row", what, index, line.number, actual, f"2 fields: {fields_of}"))
    return places, refused


def _present(folder: Path, names: Sequence[str]) -> str:
    present = next((name for name in names if (folder / name).exists()), None)
    if present is None:
        raise DatasetError(
            "a part of CelebA is not there",
            where=folder,
            found=f"no {names[0]}",
            expected=_EXPECTED,
            hint="put the published files there under their own names; converted tables are not read",
        )
    return present


def _unusable(what: str, index: str, found: object, expected: object) -> NoReturn:
    hint = "restore the published file; for a subset, write its own number of images into line 1"
    raise DatasetError(what, where=index, found=printable(str(found)), expected=expected, hint=hint)
