"""Colours that stay apart for colour-blind readers and in grey print (Okabe and Ito 2008), and one sequential scale."""

from __future__ import annotations

INK = "#1f2430"
SOFT = "#5c6370"
FAINT = "#d9dce1"
GRID = "#eceef1"

BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
AMBER = "#c07a00"
PURPLE = "#9b4f86"
SLATE = "#465066"
GREY = "#8a909c"

ATTRIBUTE_COLOURS = {"race": BLUE, "gender": AMBER, "age_group": GREEN, "gender_race": PURPLE}
ATTRIBUTE_MARKERS = {"race": "o", "gender": "D", "age_group": "s", "gender_race": "o"}
VALENCE_COLOURS = {"negative": VERMILION, "neutral": "#6f7682", "positive": GREEN}

# Lightness falls steadily, so that order survives colour blindness and grey print.
SEQUENTIAL = "BuPu"


def attribute_colour(attribute: str) -> str:
    """Return the colour that an attribute keeps through the whole report."""
    return ATTRIBUTE_COLOURS.get(attribute, SLATE)


def attribute_marker(attribute: str) -> str:
    """Return the shape that an attribute keeps, so that colour is never the only sign."""
    return ATTRIBUTE_MARKERS.get(attribute, "o")
