"""What is drawn on: figures of the page in pixels, labels and tips; and the drawing as SVG and as a small PNG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.report.figures.inline_svg import inline_svg, tips_id
from plumbline.report.figures.palette import FAINT, INK, SOFT
from plumbline.report.visible import visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    return inline_svg(
        buffer.getvalue(), name=picture.name, title=picture.title, description=picture.description
    )


def to_png(picture: Picture) -> bytes:
    """Return a picture as a PNG of at most `PNG_LIMIT` bytes, at the largest scale that fits."""
    from PIL import Image

    buffer = io.BytesIO()
    with drawing():
        picture.figure.savefig(buffer, format="png", dpi=72, metadata={"Software": None})
    with Image.open(buffer) as image:
        whole = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert(
            "RGB"
        )
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
