"""A number as a paper prints it: its value in Plumbline's unit, and how far it may be from what was rounded."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

PRINTED_UNITS: dict[str | None, int] = {None: 0, "bin": 0, "percent": -2, "hundredths": -2}
"""Unit in print to the power of ten that turns it into Plumbline's unit."""


@dataclass(frozen=True)
class PrintedNumber:
    """One printed number.

    Attributes
    ----------
    value : Decimal
        In Plumbline's unit: 13 percent is 0.13. Of a bin such as `0.2-0.3` the lower edge.
    decimals : int
        Digits after the point, as printed; of `1.1e-08` those that it would have written out.
    rounding : Decimal
        Half of the last printed digit, in Plumbline's unit; 0 for the edge of a bin, which is exact.
    """

    value: Decimal
    decimals: int
    rounding: Decimal


def read_number(text: str, printed_unit: str | None = None) -> PrintedNumber:
    """Read a printed number, such as `+0.96`, `13`, `4.0%`, `-1.6e-02` or, of a bin, `0.2-0.3`.

    Parameters
    ----------
    printed_unit : {None, "bin", "percent", "hundredths"}
        None: printed in Plumbline's own unit. A percent sign is only right in `percent`.

    Raises
    ------
    ValueError
        If it is no finite number in this unit; the message says what it is.
    """
    if printed_unit not in PRINTED_UNITS:
        raise ValueError(f"no known unit of print: {printed_unit}")
    digits = text.removesuffix("%") if printed_unit == "percent" else text
    if printed_unit == "bin":
        digits, _, upper = text.partition("-")
        _decimal(upper, text)
    number = _decimal(digits, text)
    exponent = int(number.as_tuple().exponent)
    shift = PRINTED_UNITS[printed_unit]
    half = Decimal(0) if printed_unit == "bin" else Decimal(5).scaleb(exponent - 1 + shift)
    return PrintedNumber(value=number.scaleb(shift), decimals=max(0, -exponent), rounding=half)


def _decimal(digits: str, text: str) -> Decimal:
    try:
        number = Decimal(digits)
    except InvalidOperation as error:
        raise ValueError(f"no number: {text!r}") from error
    if not number.is_finite():
        raise ValueError(f"no finite number: {text!r}")
    return number
