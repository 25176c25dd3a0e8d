"""A folder of images with a subfolder for each class, as ImageNet and torchvision's ImageFolder have it."""

from __future__ import annotations

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
