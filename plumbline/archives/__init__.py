"""Archives that somebody else made, extracted so that nothing in them can reach beyond one new folder."""

from plumbline.archives.extraction import Extracted, extract_archive
from plumbline.archives.limits import Limits

__all__ = ["Extracted", "Limits", "extract_archive"]
