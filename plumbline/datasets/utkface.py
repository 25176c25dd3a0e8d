"""UTKFace: a folder of images whose names are their labels."""

from __future__ import annotations

import re

from plumbline.datasets.indexes import FolderIndexed
from plumbline.datasets.records import Entry, Refusal, load_declaration

_NAME = re.compile(r"(0|[1-9][0-9]*)_([0-9]+)_([0-9]+)_([0-9]+)\.jpg(\.chip\.jpg)?", re.ASCII | re.IGNORECASE)


class UTKFace(FolderIndexed):
    """Reader of UTKFace (Zhang, Song and Qi, CVPR 2017).

    A name of another form is a refusal, since a missing field cannot be told.
    """

    declaration = load_declaration("utkface")
    name = "UTKFace"
    form = "[age]_[gender]_[race]_[date&time].jpg, also .jpg.chip.jpg"

    def entry(self, path: str) -> Entry | Refusal:
        """Return age, gender and race as the file's name has them, in any folder."""
        match = _NAME.fullmatch(path.rpartition("/")[2])
        if match is None:
            return self.malformed(path)
        age, gender, race = match.groups()[:3]
        return Entry(path, None, {"age": age, "gender": gender, "race": race})
