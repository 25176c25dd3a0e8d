"""A chart: a Vega-Lite specification with the words that go with it, and the look that all charts share.

Specifications are plain dicts: Altair's typed objects take 60 ms a chart, which is 10 s for a report. `Chart.figure`
is the Altair object, and tests hold every specification against Altair's schema.

Text from outside (names of models, labels, files) stands in data values, in `params` values and in titles, never in an
expression. The few expressions look names up by place, such as `rows[datum.value]`; `tests/report/chart_data.py` holds
their list.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.visible import visible

if TYPE_CHECKING:
    import altair as alt

Spec = dict[str, Any]

# --- Colours that stay apart for colour-blind readers and in grey print (Okabe and Ito 2008), on white and on black.

INK = "#1f2430"
SOFT = "#5c6370"
FAINT = "#b9bec8"
GRID = "#e3e6ea"

BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
AMBER = "#c07a00"
PURPLE = "#b0659b"
SLATE = "#6b7690"
GREY = "#8a909c"

ATTRIBUTE_COLOURS = {"race": BLUE, "gender": AMBER, "age_group": GREEN, "gender_race": PURPLE}
DIAMOND, UP, DOWN = "M0,-1.3L1.3,0L0,1.3L-1.3,0Z", "M0,-1.3L1.3,0.95H-1.3Z", "M0,1.3L1.3,-0.95H-1.3Z"
"""A diamond and triangles as large as a circle of the same size; Vega's own are half of it."""
ATTRIBUTE_SHAPES = {"race": "circle", "gender": DIAMOND, "age_group": "square", "gender_race": UP}
PALETTE = ((BLUE, "circle"), (AMBER, DIAMOND), (GREEN, "square"), (VERMILION, UP), (PURPLE, DOWN), (SLATE, "cross"))
"""Colours and shapes of series that have none of their own, in this order."""
VALENCE_COLOURS = {"negative": VERMILION, "neutral": GREY, "positive": GREEN}

# Lightness falls steadily, so that order survives colour blindness and grey print.
SEQUENTIAL = ("#f2f5fa", "#c9d8ea", "#93b4d8", "#5a89bd", "#2f5f98", "#183a66")
DARK_FROM = 0.5
"""Share of the sequential scale from which text on it is white."""

# --- The look.

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first one is in vl-convert itself, so that a PNG has the same bytes on every machine."""

THEME: Spec = {
    "font": FONT,
    "background": "white",
    "padding": 4,
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": GRID,
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 260,
        "labelPadding": 6,
        "titleColor": SOFT,
    },
    "axisX": {"domain": True, "domainColor": FAINT, "labelColor": SOFT, "labelFontSize": 11, "labelFlush": True},
    "header": {"labelColor": INK, "labelFontSize": 12.5, "labelPadding": 4, "labelFontWeight": "normal"},
    "legend": {"labelColor": INK, "labelFontSize": 12, "symbolOpacity": 1, "labelLimit": 320, "offset": 6},
    "title": {
        "color": SOFT,
        "fontSize": 12,
        "fontWeight": "normal",
        "subtitleColor": SOFT,
        "subtitleFontSize": 12,
        "anchor": "start",
        "offset": 6,
    },
    "point": {"opacity": 1, "size": 62, "strokeWidth": 1.5},
    "rule": {"strokeWidth": 1.6},
    "text": {"color": INK, "fontSize": 11},
    "style": {
        "second": {"color": INK, "strokeWidth": 2.2, "size": 130},
        "line": {"color": GREY, "strokeWidth": 1.3},
        "band": {"color": GREY, "opacity": 0.28},
        "said": {"color": SOFT, "fontStyle": "italic", "align": "left", "dx": 4},
        "column": {"color": SOFT, "fontSize": 11},
        "heading": {"color": INK, "fontSize": 12, "fontWeight": "bold"},
    },
}
"""What every chart looks like on paper. A page in dark mode changes colours of text and grid, and the param `paper`."""

WIDTH = 880
"""Pixels of a chart that takes the page's whole width."""
PNG_LIMIT = 30_000

PAPER = "white"
"""What hollow dots are filled with: the value of the param `paper`, which a dark page changes."""

# Of which Altair class a specification is; one without these keys is a single view.
_KINDS = {"facet": "FacetChart", "vconcat": "VConcatChart", "hconcat": "HConcatChart", "layer": "LayerChart"}


_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _drawable(part: Any) -> Any:
    """Return a part of a specification without characters that no XML has: vl_convert draws by SVG."""
    if isinstance(part, str):
        return _NO_XML.sub("\ufffd", part)  # an escape would not do: Vega undoes it in titles
    if isinstance(part, dict):
        return {_drawable(key): _drawable(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_drawable(each) for each in part]
    return part


@dataclass(frozen=True)
class Chart:
    """A chart with the words that go with it.

    Attributes
    ----------
    name : str
        Unique in a report; letters, digits and `-` (anything else becomes `-`).
    title : str
        What the chart says, for the heading and for assistive technology.
    description : str
        What is drawn and how to read it.
    spec : dict
        Vega-Lite, with its data and without `config`: the page and `png` apply `THEME`. Characters that no XML has
        become U+FFFD: drawing them would end the process.
    """

    name: str
    title: str
    description: str
    spec: Spec

    def __post_init__(self) -> None:
        """Make name, title and description safe to stand anywhere."""
        name = "".join(c if c.isascii() and c.isalnum() else "-" for c in self.name)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "title", visible(self.title))
        object.__setattr__(self, "description", visible(self.description, longest=2000))
        object.__setattr__(self, "spec", _drawable(self.spec))

    @property
    def figure(self) -> alt.TopLevelMixin:
        """Return the chart as an Altair object, to show or change in a notebook."""
        import altair as alt

        kind = next((name for key, name in _KINDS.items() if key in self.spec), "Chart")
        chart: alt.TopLevelMixin = getattr(alt, kind).from_dict(self.spec | {"config": THEME}, validate=False)
        return chart

    @property
    def png(self) -> bytes:
        """Return the chart under its title as a PNG of at most `PNG_LIMIT` bytes, at the largest scale that fits."""
        import vl_convert

        return small_png(vl_convert.vegalite_to_png(self._titled(), config=THEME))

    def _titled(self) -> Spec:
        inner = {key: value for key, value in self.spec.items() if key not in ("$schema", "params")}
        title = {"text": self.title, "fontSize": 14, "fontWeight": "bold", "color": INK}
        outer = {key: self.spec[key] for key in ("$schema", "params") if key in self.spec}
        return outer | {"vconcat": [inner], "title": title}

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:
        return self.figure._repr_mimebundle_(*args, **kwargs)


def top_level(body: Spec, **names: Any) -> Spec:
    """Return a specification with names in `params`, where expressions find them."""
    params = [{"name": name, "value": value} for name, value in names.items()]
    return {"$schema": "https://vega.github.io/schema/vega-lite/v6.1.0.json", "params": params, **body}


def small_png(png: bytes) -> bytes:
    """Return a PNG with few colours, shrunk where it is above `PNG_LIMIT` bytes."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        whole = image.convert("RGB")
    # Shrunk, not drawn again: laying out the text is what takes time.
    for scale in (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1):
        size = (max(1, round(whole.width * scale)), max(1, round(whole.height * scale)))
        shrunk = whole if scale == 1 else whole.resize(size, Image.Resampling.LANCZOS)
        # Maximum coverage keeps rare saturated colours, of which the scales are made; median cut greys them.
        small = shrunk.quantize(colors=64, method=Image.Quantize.MAXCOVERAGE)
        out = io.BytesIO()
        small.save(out, format="PNG", optimize=True)
        if out.tell() <= PNG_LIMIT:
            break
    return out.getvalue()


def label(text: object, *, longest: int = 34) -> str:
    """Return untrusted text as a label: unseen characters escaped, cut at `longest` characters."""
    shown = visible(text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def text_width(texts: list[str], *, size: float = 12) -> float:
    """Return about how many pixels the longest of some labels takes."""
    return max((len(text) for text in texts), default=0) * size * 0.54
