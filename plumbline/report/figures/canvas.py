"""Colours that stay apart for colour-blind readers and in grey print (Okabe and Ito 2008), and one sequential scale."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from plumbline.report.visible import visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


# --- SVG as it can stand in a page: accessible, without script, address, date or stray ids, the same
# every time.

_TIPS = "tips:"
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_MEASURED_WITH = " font-family: 'DejaVu Sans';"


def tips_id(tips: Sequence[str]) -> str:
    """Return the id by which `inline_svg` knows what to say of each mark, in drawing order."""
    return _TIPS + json.dumps([visible(tip) for tip in tips])


def inline_svg(raw: bytes, *, name: str, title: str, description: str) -> str:
    """Return what matplotlib wrote as one `<svg>` element: titled, scalable, no namespaces, styles, dates or stray ids.

    Parameters
    ----------
    name : str
        Prefixes every id, so that pictures of one page do not share any.
    """
    root = ET.fromstring(raw)  # noqa: S314 - our own output of a moment ago
    _plain_names(root)
    _drop(root, ("metadata", "style"))
    _insert_tips(root)
    _tidy_ids(root, name)
    _round(root)
    _prune(root)
    labelled = _labelled(root, name=name, title=title, description=description)
    return ET.tostring(labelled, encoding="unicode", short_empty_elements=True)


def _plain_names(root: ET.Element) -> None:
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in [n for n in element.attrib if "}" in n]:
            element.attrib[name.rpartition("}")[2]] = element.attrib.pop(name)


def _drop(root: ET.Element, tags: tuple[str, ...]) -> None:
    for parent in root.iter():
        for child in [c for c in parent if c.tag in tags]:
            parent.remove(child)


def _insert_tips(root: ET.Element) -> None:
    for group in root.iter("g"):
        gid = group.get("id", "")
        if not gid.startswith(_TIPS):
            continue
        tips = json.loads(gid.removeprefix(_TIPS))
        marks = list(group.iter("use")) or list(group.iter("path"))
        for mark in marks:
            _as_circle(mark)
        if len(marks) == len(tips):
            for mark, tip in zip(marks, tips):
                ET.SubElement(mark, "title").text = tip


def _as_circle(mark: ET.Element) -> None:
    # matplotlib writes a scattered disc as eight Bezier curves from its lowest point: ten times a circle's bytes.
    path = mark.attrib.get("d", "")
    if mark.tag != "path" or path.count("C") != 8:
        return
    ys = [float(y) for y in re.findall(r"[-\d.]+\s+([-\d.]+)", path)]
    x = float(path.split()[1])
    radius = (max(ys) - min(ys)) / 2
    del mark.attrib["d"]
    mark.tag = "circle"
    mark.attrib.update({"cx": f"{x:.2f}", "cy": f"{min(ys) + radius:.2f}", "r": f"{radius:.2f}"})


def _tidy_ids(root: ET.Element, prefix: str) -> None:
    used: set[str] = set()
    for element in root.iter():
        for value in element.attrib.values():
            used.update(re.findall(r"url\(#([^)]+)\)", value))
        if element.get("href", "").startswith("#"):
            used.add(element.attrib["href"][1:])
    names = {old: f"{prefix}-{number}" for number, old in enumerate(sorted(used))}
    for element in root.iter():
        if (element_id := element.get("id")) is not None:
            if element_id in names:
                element.set("id", names[element_id])
            else:
                del element.attrib["id"]
        if element.get("href", "").startswith("#"):
            element.set("href", "#" + names[element.attrib["href"][1:]])
        for name, value in element.attrib.items():
            if "url(#" in value:
                element.set(name, re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{names[m[1]]})", value))


def _round(root: ET.Element) -> None:
    for element in root.iter():
        for name in ("d", "x", "y", "width", "height", "transform", "style", "viewBox"):
            if name in element.attrib:
                element.set(name, _NUMBER.sub(_two_decimals, element.attrib[name]))
        if "d" in element.attrib:
            element.set("d", " ".join(element.attrib["d"].split()))
        if "style" in element.attrib:
            element.set("style", element.attrib["style"].replace(_MEASURED_WITH, ""))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        element.tail = None
        if element.tag not in ("text", "title", "tspan"):
            element.text = None


def _prune(parent: ET.Element) -> None:
    for child in list(parent):
        _prune(child)
        if child.tag in ("g", "defs") and len(child) == 0:
            parent.remove(child)


def _two_decimals(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _labelled(root: ET.Element, *, name: str, title: str, description: str) -> ET.Element:
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    title_id, description_id = f"{name}-title", f"{name}-desc"
    root.attrib.update(
        {
            "class": "figure",
            "role": "img",
            "aria-labelledby": f"{title_id} {description_id}",
            "viewBox": f"0 0 {width} {height}",
            "style": f"max-width: {width}px",
        }
    )
    for place, (own_id, tag, text) in enumerate(((title_id, "title", title), (description_id, "desc", description))):
        element = ET.Element(tag, {"id": own_id})
        element.text = visible(text, longest=2000)
        root.insert(place, element)
    return root


# --- What is drawn on: figures of the page in pixels, labels and tips; and the drawing as SVG and as a
# small PNG.

PNG_LIMIT = 30_000
_STYLE: Any = {
    "figure.dpi": 72,
    "svg.fonttype": "none",
    "svg.hashsalt": "plumbline",
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.unicode_minus": True,
    "xtick.color": SOFT,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "font.family": ["DejaVu Sans"],
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titleweight": "normal",
    "axes.labelsize": 12,
    "xtick.labelsize": 11,
    "xtick.major.pad": 5,
    "ytick.labelsize": 12,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "path.simplify": False,
}
# DejaVu Sans, by which matplotlib measures, is wide; 0.54 em a character fits the narrower fonts of the page too.
_CHARACTER = 0.54


@dataclass(frozen=True)
class Picture:
    """A drawn figure with the words that go with it.

    Attributes
    ----------
    name : str
        Identifier, unique in a report; prefixes every id inside the SVG.
    title : str
        What the figure says, for the heading and for assistive technology.
    description : str
        What is drawn and how to read it.
    figure : matplotlib Figure
        The drawing itself.
    """

    name: str
    title: str
    description: str
    figure: Figure

    @property
    def svg(self) -> str:
        """Return the drawing as one `<svg>` element for inlining in HTML."""
        return to_svg(self)

    @property
    def png(self) -> bytes:
        """Return the drawing as a PNG below `PNG_LIMIT` bytes."""
        return to_png(self)


@dataclass(frozen=True)
class Drawn:
    """A picture that is an `<svg>` element already, without its figure: it can go to another process."""

    name: str
    title: str
    description: str
    svg: str


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the report's style, and nothing of the machine's own matplotlib configuration, while drawing."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # A label in a script that DejaVu lacks is still right in the page, which brings its own fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcParams.update(matplotlib.rcParamsDefault | {"backend": "agg"})
        matplotlib.rcParams.update(_STYLE)
        yield


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of a size in pixels of the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    figure.patch.set_visible(False)
    return figure


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes at a place in pixels, measured from the top left corner of the figure."""
    full_width, full_height = figure.get_size_inches() * 72
    axes = figure.add_axes(
        (left / full_width, 1 - (top + height) / full_height, width / full_width, height / full_height)
    )
    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return axes


def write(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Write text at a place in pixels from the top left corner."""
    full_width, full_height = figure.get_size_inches() * 72
    figure.text(x / full_width, 1 - y / full_height, label(text, longest=200), **style)


def label(text: object, *, longest: int = 30) -> str:
    """Return untrusted text as a label: unseen characters escaped, cut at `longest` characters."""
    shown = visible(text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def text_width(texts: Sequence[str], *, size: float = 12) -> float:
    """Return the pixels that the longest of some labels takes."""
    return max((len(text) for text in texts), default=0) * size * _CHARACTER


def with_tips(artist: Artist, tips: Sequence[str]) -> None:
    """Give each mark of an artist the words that show when a reader points at it, in drawing order."""
    artist.set_gid(tips_id(tips))


def to_svg(picture: Picture) -> str:
    """Return a picture as one `<svg>` element: titled, scalable, no namespaces, styles, dates or stray ids."""
    buffer = io.BytesIO()
    with drawing():
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        picture.figure.savefig(buffer, format="svg", metadata=nothing)
    return inline_svg(buffer.getvalue(), name=picture.name, title=picture.title, description=picture.description)


def to_png(picture: Picture) -> bytes:
    """Return a picture as a PNG of at most `PNG_LIMIT` bytes, at the largest scale that fits."""
    from PIL import Image

    buffer = io.BytesIO()
    with drawing():
        picture.figure.savefig(buffer, format="png", dpi=72, metadata={"Software": None})
    with Image.open(buffer) as image:
        whole = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")
    # Shrunk, not drawn again: laying out the text is what takes time.
    for scale in (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1):
        size = (max(1, round(whole.width * scale)), max(1, round(whole.height * scale)))
        shrunk = whole if scale == 1 else whole.resize(size, Image.Resampling.LANCZOS)
        # Maximum coverage keeps rare saturated colours, of which the scales are made; median cut greys them.
        small = shrunk.quantize(colors=160, method=Image.Quantize.MAXCOVERAGE)
        out = io.BytesIO()
        small.save(out, format="PNG", optimize=True)
        if out.tell() <= PNG_LIMIT:
            break
    return out.getvalue()
