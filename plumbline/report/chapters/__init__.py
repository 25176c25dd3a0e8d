"""The chapters of the report beside outcomes and Trident, in their order: one module each, one row here."""

from __future__ import annotations

from plumbline.report.chapter import Chapter

CHAPTERS: tuple[Chapter, ...] = ()
