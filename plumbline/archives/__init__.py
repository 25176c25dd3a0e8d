"""Archives that somebody else made, extracted so that nothing in them can reach beyond one new folder."""

from plumbline.archives.extraction import Extracted, Limits, extract_archive

__all__ = ["Extracted", "Limits", "extract_archive"]
