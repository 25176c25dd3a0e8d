"""How the positive and the negative words of a dimension go together over the faces of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report.figures.associations import ATTRIBUTES, ROW
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.palette import INK, SEQUENTIAL
from plumbline.report.figures.panels import panels_figure
from plumbline.report.numbers import MINUS
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import DIMENSIONS, group_title, is_composite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVERYONE = "all images"


def correlation_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw the correlation of the valences by group (rows), dimension (columns) and model (panels) as heat maps."""
    rows = where(table, metric="valence_correlation", dataset=dataset, condition="before")
    if rows.is_empty():
        return None
    shown_models = in_order(rows["model"], models)
    groups = _correlated_groups(rows)
    found = by(rows, "model", "event", "attribute", "group")
    names = [EVERYONE if group is None else group_title(group) for _, group in groups]
    dimensions = in_order(rows["event"], DIMENSIONS)

    def draw(axes: Axes, index: int) -> None:
        axes.set_xlim(0, len(dimensions))
        axes.set_xticks([i + 0.5 for i in range(len(dimensions))], dimensions)
        axes.spines["bottom"].set_visible(False)
        for i, dimension in enumerate(dimensions):
            _heat(axes, i, [found.get((shown_models[index], dimension, *group)) for group in groups], reading)

    return Picture(
        name=f"valences-{dataset}",
        title=f"Do positive and negative words go together? {dataset}",
        description="Pearson's correlation, over a group's faces, of the mean cosine with the positive words and with "
        "the negative words of a dimension. Near 1 the model hardly tells the two apart. In brackets: groups with "
        f"fewer than {reading.minimum_group} images.",
        figure=panels_figure(
            shown_models, draw, rows=names, height=ROW * len(names), beside=28, above=44, below=20
        ),
    )


def _correlated_groups(rows: pl.DataFrame) -> list[tuple[str | None, str | None]]:
    """Return all images and the groups of gender × race, or of single attributes where there is no such crossing."""
    attributes = in_order(rows["attribute"], ATTRIBUTES)
    crossed = [name for name in attributes if is_composite(name)]
    found: list[tuple[str | None, str | None]] = [(None, None)]
    for attribute in crossed or attributes:
        found += [(attribute, group) for group in in_order(where(rows, attribute=attribute)["group"], ())]
    return found


def _heat(axes: Axes, column: int, rows: list[Row | None], reading: Reading) -> None:
    import matplotlib

    scale = matplotlib.colormaps[SEQUENTIAL]
    middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 10.5, "zorder": 3}
    for y, row in enumerate(rows):
        if row is None or not defined(row["value"]):
            continue
        shade = 0.04 + 0.9 * max(0.0, row["value"])
        axes.barh(y, 0.95, left=column + 0.025, height=0.9, color=scale(shade), linewidth=0, zorder=2)
        text = f"{row['value']:.2f}".replace("-", MINUS)
        shown = text if row["n"] >= reading.minimum_group else f"({text})"
        axes.text(column + 0.5, y, shown, color="white" if row["value"] > 0.55 else INK, **middle)
