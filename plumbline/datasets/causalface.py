"""CausalFace: synthetic faces that vary in one attribute at a time, encoded in folder and file names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from plumbline.datasets.indexes import FolderIndexed
from plumbline.datasets.records import Entry, Refusal, load_declaration
from plumbline.errors import ImageRejected

# Folder of a dimension, to what the names below it are marked with.
_MARKS = {"age": "age", "lighting": "l", "pose": "y", "smiling": "smiling"}

_PATH = re.compile(
    r"final_picked_(?P<folder>[a-z]+)/seed_(?P<seed>[0-9]+)/"
    r"(?P<race>[a-z]+)_(?P<gender>[a-z]+)_(?P<mark>[a-z]+)_(?P<value>-?[0-9]{1,3}(?:\.[0-9]{1,3})?)(?:_o2)?(?:_corrected)?\.png",
    re.ASCII,
)

# The study's own script writes them beside the faces: without background, and with the brightness set right.
_WITHOUT_BACKGROUND = "_rm_bg"
_CORRECTED = "_corrected.png"


class CausalFace(FolderIndexed):
    """Reader of CausalFace (Liang, Perona and Balakrishnan, ICCV 2023).

    Known from the published reader of the social perception study, and followed here: the folders
    `final_picked_{age,lighting,pose,smiling}/seed_N`; names `race_gender_mark_value.png`, where the mark is `age`,
    `l` (lighting), `y` (pose) or `smiling` and `_o2` follows the value of age and smiling; the levels of each
    dimension; that a picture of a smile may have a version with the brightness set right, `_corrected`, which the
    study uses instead; and versions without background, `_rm_bg`.

    Assumed: that the number after `seed_` joins the faces of one person through all dimensions, and that a level
    may be written with or without a decimal point (`0`, `0.0`).

    A corrected picture takes the place of its original, which is quarantined (`superseded`). Versions without
    background are other pictures of the same faces and are quarantined too (`without_background`): leave them out
    of the folder, or raise the dataset's `quarantine_rate`. So is any other file (`malformed_name`). A picture that
    stands in several dimensions, byte for byte, as a face at its default level does, has a row in each.
    """

    declaration = load_declaration("causalface")
    name = "CausalFace"
    form = "final_picked_<dimension>/seed_<N>/<race>_<gender>_<age, l, y or smiling>_<value>[_o2][_corrected].png"

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a face, by path in code-point order; what is left out is a refusal with its reason.

        Raises
        ------
        DatasetError
            If there is no file at all, or a folder cannot be listed.
        """
        listed = super().entries(root)
        paths = {item.path for item in listed}
        return [_unless_superseded(item, paths) for item in listed]

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Map race, gender, dimension and level; the set is the seed.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        return {**super().labels(raw), "set_id": raw["seed"]}

    def entry(self, path: str) -> Entry | Refusal:
        """Return the labels in folder and file name; a dimension's folder holds only that dimension."""
        if _WITHOUT_BACKGROUND in path and _PATH.fullmatch(path.replace(_WITHOUT_BACKGROUND, "")):
            what = "the picture is a face without its background"
            return _left_out("without_background", what, path, self.form)
        match = _PATH.fullmatch(path)
        if match is None or _MARKS.get(match["folder"], match["mark"]) != match["mark"]:
            return self.malformed(path)
        # Adding 0 makes -0 a plain 0.
        level = f"{float(match['value']) + 0:g}"
        raw = {name: match[name] for name in ("race", "gender", "seed")}
        return Entry(path, None, {**raw, "dimension": match["mark"], "step": f"{match['mark']} {level}"})


def _unless_superseded(item: Entry | Refusal, paths: Set[str]) -> Entry | Refusal:
    corrected = f"{item.path.removesuffix('.png')}{_CORRECTED}"
    if isinstance(item, Refusal) or corrected not in paths:
        return item
    what = "a version with the brightness set right takes the place of this picture"
    return _left_out("superseded", what, item.path, corrected)


def _left_out(code: str, what: str, path: str, expected: str) -> Refusal:
    return Refusal.of(ImageRejected(code, what, found=path, expected=expected), path=path, stage="index")
