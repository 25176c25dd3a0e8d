"""The chapters of the report, and which of them are on generated texts."""

from plumbline.report.chapters import CHAPTERS

ANCHORS = ("generation", "words", "ratings", "instructions", "base_llm")
CHAPTER = {chapter.anchor: chapter for chapter in CHAPTERS}
