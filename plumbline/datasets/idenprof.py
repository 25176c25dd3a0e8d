"""IdenProf: images of people at work, with one folder per occupation."""

from __future__ import annotations

from plumbline.datasets.indexes import FolderIndexed
from plumbline.datasets.records import Entry, Refusal, load_declaration
from plumbline.errors import ImageRejected

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
