"""How every number of the report is written: two significant digits, the sample size beside a percentage."""

from __future__ import annotations

import math
from decimal import Decimal

from plumbline.statistics.multiplicity import SIGNIFICANCE

UNDEFINED = "undefined"
NO_INTERVAL = "no interval"
MINUS = "−"
SMALLEST_PLAIN = 1e-4
# Unbreakable, so that no line ends between a sign and its number.
EQUALS, BELOW = "\u00a0=\u00a0", "\u00a0<\u00a0"


def _decimals(value: float, digits: int) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = float(f"{abs(value):.{digits - 1}e}")
    return max(0, digits - 1 - math.floor(math.log10(rounded)))


def _fixed(value: float, decimals: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:,.{decimals}f}"
    if text.strip("-0.,") == "":
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def agreeing_decimals(least: float, most: float, gap: float, *, share: bool = False) -> int | None:
    """Return with how many decimals two values and their gap are written, so that they add up as written.

    None where they do when each is written alone: 12%, 1.0% and 11 points. Else the fewest with which each has the
    digits that it has alone and the gap is, as written, the difference of the two; four more at most, and two of a
    percentage. None as well where no number of decimals does it: a gap that is no difference of the two, such as a mean
    over sets.

    Parameters
    ----------
    share : bool
        The values are shares in [0, 1], written as percentages and points.

    Examples
    --------
    >>> agreeing_decimals(0.0901, 0.1652, 0.0751, share=True), agreeing_decimals(0.01, 0.12, 0.11, share=True)
    (1, None)
    >>> agreeing_decimals(1.24, 1.56, 0.32)
    2
    """
    values = [(100 if share else 1) * value for value in (least, most, gap)]
    alone = [_decimals(value, 2) for value in values]
    if share:
        alone = [*map(_percentage_decimals, values[:2]), min(1, alone[2])]
    if _add_up(values, alone):
        return None
    fewest = max(alone)
    # More decimals of a percentage are no help to a reader.
    most = max(fewest, 2) if share else fewest + 4
    return next((many for many in range(fewest, most + 1) if _add_up(values, [many] * 3)), None)


def _add_up(values: list[float], decimals: list[int]) -> bool:
    """Return whether the last of three values is the second less the first, as they are written."""
    least, most, gap = (Decimal(f"{value:.{many}f}") for value, many in zip(values, decimals))
    return most - least == gap


def number(value: float | None, *, digits: int = 2, decimals: int | None = None) -> str:
    """Write a value with `digits` significant digits, never fewer than its whole part; or with so many `decimals`.

    Examples
    --------
    >>> number(1.947), number(0.0346), number(12345.6), number(0.0000123), number(float("nan"))
    ('1.9', '0.035', '12,346', '1.2e−5', 'undefined')
    """
    if value is None or math.isnan(value):
        return UNDEFINED
    if decimals is not None:
        return _fixed(value, decimals)
    if 0 < abs(value) < SMALLEST_PLAIN:
        digits_part, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{digits_part}e{int(exponent)}".replace("-", MINUS)
    return _fixed(value, _decimals(value, digits))


def money(value: float | None) -> str:
    """Write US dollars without cents: $52,000."""
    return UNDEFINED if value is None or math.isnan(value) else f"${_fixed(value, 0)}"


def count(value: int | None) -> str:
    """Write a count with thousands separated: 12,345."""
    return "not counted" if value is None else f"{value:,}"


def compact(value: int | None) -> str:
    """Write a large count in thousands (k), millions (M) or billions (B): 950,000 is `950 k`."""
    if value is None:
        return "not counted"
    for size, suffix in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return number(value / size) + suffix
    return str(value)


def percent(share: float | None, n: int | None = None, *, minimum_group: int = 0, decimals: int | None = None) -> str:
    """Write a share in [0, 1] as a percentage with two significant digits or so many `decimals`, and its sample size.

    A share below 1 is never rounded up to 100%. A sample below `minimum_group` is called a small group.

    Examples
    --------
    >>> percent(0.452), percent(0.00568), percent(0.9996), percent(1.0)
    ('45%', '0.57%', '>99.9%', '100%')
    """
    text = UNDEFINED if share is None or math.isnan(share) else _percentage(100 * share, decimals)
    if n is None:
        return text
    return f"{text} (n{EQUALS}{n:,}{', small group' if n < minimum_group else ''})"


def _percentage(value: float, decimals: int | None = None) -> str:
    if decimals is not None and not (value < 100 and round(value, decimals) >= 100):
        return f"{_fixed(value, decimals)}%"
    if 0 < abs(value) < 0.001:
        return "<0.001%"
    if 99.95 <= value < 100:
        return ">99.9%"
    return f"{_fixed(value, _percentage_decimals(value))}%"


def _percentage_decimals(value: float) -> int:
    """Return with how many decimals a percentage is written alone: two digits, three where two would make it 100%."""
    return 1 if 99.5 <= value < 100 else _decimals(value, 2)


def points(share: float | None, *, decimals: int | None = None) -> str:
    """Write a difference of shares as signed percentage points: +1.2 points; with so many `decimals`, where given."""
    if share is None or math.isnan(share):
        return UNDEFINED
    value = 100 * share
    text = _fixed(value, min(1, _decimals(value, 2)) if decimals is None else decimals)
    sign = "+" if value > 0 and text not in ("0", "0.0") else ""
    return f"{sign}{text} points"


def interval(low: float | None, high: float | None, *, scale: float = 1.0, unit: str = "") -> str:
    """Write an interval with the precision of its wider end: `1.5–2.4`, `−0.10 to 0.32`.

    An end that is not 0 is never written as 0, which would be no difference, nor one near 1 as 1, which would be no
    difference of a ratio: it has as many digits more as it needs.

    Parameters
    ----------
    scale, unit : float, str
        100 and `%` for shares.
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return NO_INTERVAL
    low, high = low * scale, high * scale
    decimals = _decimals(high if math.isfinite(high) and high != 0 else low, 2)
    joiner = " to " if low < 0 else "–"
    return f"{_end(low, decimals)}{joiner}{_end(high, decimals)}{unit}"


def _end(value: float, decimals: int) -> str:
    text = _fixed(value, decimals)
    if value != 0 and text.strip("0.") == "":
        return _fixed(value, _decimals(value, 1))
    if 0.5 < value < 1.5 and value != 1 and float(text) == 1:
        return _fixed(value, _decimals(1 - value, 1))
    return text


def named_interval(low: float | None, high: float | None) -> str:
    """Write `interval 1.5–2.4`, or `no interval`."""
    ends = interval(low, high)
    return ends if ends == NO_INTERVAL else f"interval {ends}"


def with_interval(written: str, ends: str) -> str:
    """Write a number with its interval behind it in brackets: `1.9 [1.5–2.4]`; alone where it has none."""
    return written if ends == NO_INTERVAL else f"{written} [{ends}]"


def percent_interval(low: float | None, high: float | None) -> str:
    """Write an interval of shares in percent: `40–51%`."""
    return interval(low, high, scale=100, unit="%")


def p_value(p: float | None, name: str = "p") -> str:
    """Write a p- or q-value: `p < 0.001`, `p = 0.012`, or `no p`.

    One that rounds to the level of significance gets the decimals that tell on which side it lies: `p = 0.04996`.
    """
    if p is None or math.isnan(p):
        return f"no {name}"
    if p < 0.001:
        return f"{name}{BELOW}0.001"
    fewest = 3 if p < 0.1 else 2
    written = [f"{p:.{decimals}f}" for decimals in range(fewest, 7)]
    apart = (text for text in written if float(text) != SIGNIFICANCE)
    return f"{name}{EQUALS}{next(apart, written[0])}"


def bare_p(value: float | None) -> str:
    """Write a p- or q-value for a column of them: `< 0.001`, `0.046`, or `–` where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return p_value(value, "").replace("\u00a0", " ").strip().removeprefix("= ")


def confidence(level: float) -> str:
    """Write a confidence level: 0.95 is `95%`."""
    return f"{100 * level:g}%"
