"""Folders of images whose paths say all that is known of them: ImageFolder, IdenProf, UTKFace, neutral portraits."""

from __future__ import annotations

import re
from collections.abc import Mapping

from plumbline.datasets.indexes import FolderIndexed
from plumbline.datasets.records import Entry, Refusal, load_declaration, unsafe_characters
from plumbline.errors import ImageRejected


class ImageFolder(FolderIndexed):
    """Reader of `<class>/<image>`: what is above the first slash is the label, such as `n01440764` or `tench`."""

    declaration = load_declaration("image_folder")
    name = "image folder"
    form = "<class>/<image>"

    def entry(self, path: str) -> Entry | Refusal:
        """Return the class as the first folder has it; images may lie in folders below."""
        label, _, image = path.partition("/")
        return Entry(path, None, {"label": label}) if image else self.malformed(path)

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Return the label; raises ImageRejected (`unknown_label`) where no table can hold it."""
        if unsafe_characters(raw["label"]):
            raise ImageRejected("unknown_label", "the folder's name cannot be used", found=repr(raw["label"]))
        return {"label": raw["label"]}


# --- IdenProf: images of people at work, with one folder per occupation.

_SPLITS = ("train", "test")
_ARCHIVE = "idenprof"


class IdenProf(FolderIndexed):
    """Reader of IdenProf (Olafenwa, 2018).

    The root holds `train` and `test`, or the folder `idenprof` of the published archive, which holds them.
    """

    declaration = load_declaration("idenprof")
    name = "IdenProf"
    form = "{train,test}/<occupation>/<image>, also below idenprof/"

    def entry(self, path: str) -> Entry | Refusal:
        """Return split and occupation as the two folders above the file have them."""
        parts = path.split("/")
        if len(parts) == 4 and parts[0] == _ARCHIVE:
            del parts[0]
        if len(parts) != 3:
            return self.malformed(path)
        split, occupation, _ = parts
        if split not in _SPLITS:
            rejected = ImageRejected(
                "wrong_split", "the folder is no split", found=split, expected=" or ".join(_SPLITS)
            )
            return Refusal.of(rejected, path=path, stage="index")
        return Entry(path, split, {"occupation": occupation})


# --- UTKFace: a folder of images whose names are their labels.

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


# --- Neutral portraits: a folder of images and nothing else.


class NeutralPortraits(FolderIndexed):
    """Reader of feature-neutral portraits, the control of Data Matters Most, appendix A. They have no labels."""

    declaration = load_declaration("neutral")
    name = "neutral portraits"
    form = "as you like"

    def entry(self, path: str) -> Entry | Refusal:
        """Return the image: any file name is accepted."""
        return Entry(path, None, {})
