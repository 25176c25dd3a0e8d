"""The graph of assets as one picture for README.md, drawn from the definitions that Dagster loads.

`python -m documentation.graph` draws it again; `make screenshots` does so too.
"""

import io
import textwrap
from dataclasses import dataclass

import networkx as nx
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from documentation.asset_reference import asset_graph, assets_by_group, partition_of
from resources.checkout import PROJECT

PICTURE = PROJECT / "docs" / "images" / "graph.svg"

_LANES = {
    "sources": 1, "datasets": 1.5, "encoders": 0, "embeddings": 1, "slices": 2, "logits": 0.5, "generation": 2,
    "metrics": 0, "mitigation": 1, "language": 2, "tracking": 0.5, "findings": 1,
}  # fmt: skip
"""Group -> where its middle is from left to right, so that no arrow runs through a box; rows follow from the graph."""
_COLOURS = {
    "sources": "#e9e9e9", "datasets": "#dbe9f6", "encoders": "#dbe9f6", "slices": "#dbe9f6", "embeddings": "#e0f0dc",
    "logits": "#e0f0dc", "generation": "#e0f0dc", "metrics": "#fdeccd", "mitigation": "#fdeccd",
    "language": "#fdeccd", "tracking": "#ece2f2", "findings": "#ece2f2",
}  # fmt: skip
_LANE, _WIDTH, _GAP, _LINE, _HEAD = 3.15, 2.95, 0.34, 0.18, 0.4
"""Inches: between lanes, of a box, between rows, of a line of names, and of what stands above them."""
_LETTERS = 38
_INK, _FAINT = "#222222", "#666666"
_STYLE = {"svg.hashsalt": "plumbline", "svg.fonttype": "none", "font.family": ["DejaVu Sans", "sans-serif"]}


@dataclass(frozen=True)
class Box:
    """A group of assets with its place in inches; y is from the top."""

    group: str
    lines: tuple[str, ...]
    partition: str
    middle: float
    top: float

    @property
    def bottom(self) -> float:
        """Return where it ends, in inches from the top."""
        return self.top + _HEAD + _LINE * len(self.lines) + 0.08


def graph_picture() -> str:
    """Return the picture as SVG, the same for the same definitions."""
    arrows = group_arrows()
    boxes = _boxes(arrows)
    width, height = 2 * _LANE + _WIDTH, max(box.bottom for box in boxes.values())
    with rc_context(_STYLE):
        figure = Figure(figsize=(width + 0.1, height + 0.1))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-_WIDTH / 2 - 0.05, width - _WIDTH / 2 + 0.05), ylim=(height + 0.05, -0.05))
        axes.axis("off")
        for above, below in arrows:
            _draw_arrow(axes, boxes[above], boxes[below])
        for box in boxes.values():
            _draw_box(axes, box)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def group_arrows() -> list[tuple[str, str]]:
    """Return which group feeds which, without what follows from other arrows."""
    graph = asset_graph()
    feeds = nx.DiGraph()
    for key in graph.toposorted_asset_keys:
        node = graph.get(key)
        groups = {graph.get(parent).group_name for parent in node.parent_keys} - {node.group_name}
        feeds.add_edges_from((group, node.group_name) for group in groups)
    return sorted(nx.transitive_reduction(feeds).edges)


def _boxes(arrows: list[tuple[str, str]]) -> dict[str, Box]:
    """Return the box of each group, one row below the last group that feeds it."""
    graph = asset_graph()
    members = assets_by_group(graph)
    boxes: dict[str, Box] = {}
    top = 0.0
    for row in nx.topological_generations(nx.DiGraph(arrows)):
        for group in row:
            names = ", ".join(key.to_user_string() for key in members[group])
            partitions = {partition_of(graph.get(key)).replace("`", "") for key in members[group]}
            told = partitions.pop() if len(partitions) == 1 else "various"
            lines = tuple(textwrap.wrap(names, _LETTERS, break_long_words=False))
            boxes[group] = Box(group, lines, told, _LANES[group] * _LANE, top)
        top = max(boxes[group].bottom for group in row) + _GAP
    return boxes


def _draw_box(axes: Axes, box: Box) -> None:
    left = box.middle - _WIDTH / 2
    axes.add_patch(
        FancyBboxPatch(
            (left + 0.05, box.top + 0.05), _WIDTH - 0.1, box.bottom - box.top - 0.1,
            boxstyle="round,pad=0.05", facecolor=_COLOURS[box.group], edgecolor="#999999", linewidth=0.8,
        )
    )  # fmt: skip
    axes.text(left + 0.1, box.top + 0.2, box.group, color=_INK, size=11, weight="bold", va="center")
    right = left + _WIDTH - 0.1
    axes.text(right, box.top + 0.2, box.partition, color=_FAINT, size=8, va="center", ha="right")
    for index, line in enumerate(box.lines):
        axes.text(left + 0.1, box.top + _HEAD + _LINE * (index + 0.4), line, color=_INK, size=9, va="center")


def _draw_arrow(axes: Axes, above: Box, below: Box) -> None:
    axes.add_patch(
        FancyArrowPatch(
            (above.middle, above.bottom), (below.middle, below.top),
            arrowstyle="-|>", mutation_scale=11, color="#777777", linewidth=1.2, shrinkA=0, shrinkB=0,
        )
    )  # fmt: skip


def draw_graph() -> None:
    """Write the picture, and print where."""
    PICTURE.write_text(graph_picture(), "utf-8")
    print(PICTURE)


if __name__ == "__main__":
    draw_graph()
