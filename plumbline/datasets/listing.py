"""A table of images that are not on this disk: one row an image with its labels."""

from __future__ import annotations

from plumbline.datasets.folder import MappedFolder


class Listing(MappedFolder):
    """Reader of a table like that of `folder`, whose images are not opened: for predictions that were made elsewhere.

    Rows are told apart by their path, which need not lead anywhere; one that is listed twice is refused.
    """

    has_images = False
