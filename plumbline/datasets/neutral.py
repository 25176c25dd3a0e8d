"""Neutral portraits: a folder of images and nothing else."""

from __future__ import annotations

from plumbline.datasets.indexes import FolderIndexed
from plumbline.datasets.records import Entry, Refusal, load_declaration


class NeutralPortraits(FolderIndexed):
    """Reader of feature-neutral portraits, the control of Data Matters Most, appendix A. They have no labels."""

    declaration = load_declaration("neutral")
    name = "neutral portraits"
    form = "as you like"

    def entry(self, path: str) -> Entry | Refusal:
        """Return the image: any file name is accepted."""
        return Entry(path, None, {})
