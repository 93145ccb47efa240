"""Numbers as people read them; pure, and the only place that decides on digits and units.

Undefined (nan, None) is `UNDEFINED`, never 0; what an infinite bound means is said in words. The
reason for an undefined number stands elsewhere, next to the table.
"""

import math
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Final, Literal

Form = Callable[[float], str]

EN_DASH: Final = "\N{EN DASH}"
UNDEFINED: Final = EN_DASH
OPEN: Final = "open"
UNBOUNDED: Final = "unbounded"

_SECONDS_PER_MINUTE: Final = 60
_SECONDS_PER_HOUR: Final = 3600
_SECONDS_PER_DAY: Final = 86_400
# Below this many seconds a decimal is worth its place.
_DECIMAL_BELOW_S: Final = 9.95
_DECIMAL_BELOW_RATE: Final = 99.95
_THOUSAND: Final = 1000
_COUNT_UNITS: Final = ("", "k", "M", "G", "T")
_SIZE_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
# Sums of float64 stray from 0 and 1 by this much.
_NOTHING: Final = 1e-12
# A money amount under this is shown with more digits, so that cents of cents are not "0.00".
_SMALL_MONEY: Final = 0.01


def finite(value: float | None) -> float | None:
    """The number; None where there is none, or it is infinite or nan."""
    return float(value) if value is not None and math.isfinite(value) else None


def count(value: int) -> str:
    """A whole number with thousands separators: `12,345`."""
    return f"{value:,}"


def counted(value: int, one: str) -> str:
    """A number of things: `1 judgment`, `2 judgments`."""
    return f"{count(value)} {one if value == 1 else one + 's'}"


def compact(value: float) -> str:
    """Three significant digits with a decimal prefix: `12.3k`; whole numbers under 1,000."""
    if math.isnan(value):
        return UNDEFINED
    return _scaled(value, _COUNT_UNITS, "")


def speed(per_s: float | None) -> str:
    """A number a second in a column that says so: `0.4`, `41.2`, `412`, `12.3k`."""
    if per_s is None or not math.isfinite(per_s):
        return UNDEFINED
    return f"{per_s:.1f}" if 0 < per_s < _DECIMAL_BELOW_RATE else compact(per_s)


def size(n_bytes: float) -> str:
    """Bytes with decimal units: `1.2 MB`."""
    if math.isnan(n_bytes):
        return UNDEFINED
    return _scaled(n_bytes, _SIZE_UNITS, " ")


def _scaled(value: float, units: tuple[str, ...], gap: str) -> str:
    number = abs(value)
    power = 0
    # 999.95 would be shown as 1000, so it goes on to the next unit.
    while round(number, 1) >= _THOUSAND and power < len(units) - 1:
        number /= _THOUSAND
        power += 1
    digits = 0 if power == 0 or round(number, 1) >= _THOUSAND / 10 else 1
    sign = "-" if value < 0 else ""
    return f"{sign}{number:.{digits}f}{gap}{units[power]}"


def rating(value: float) -> str:
    """A rating in whole points: `1,234`."""
    if not math.isfinite(value):
        return UNDEFINED
    return _points(value)


def _points(value: float) -> str:
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(value) + 0:,}"


def interval(low: float, high: float) -> str:
    """Rating bounds: `[1,180, 1,290]`, `[1,180, open)`, `(open, 1,290]` or `unbounded`."""
    if math.isnan(low) or math.isnan(high):
        return UNDEFINED
    if math.isinf(low) and math.isinf(high):
        return UNBOUNDED
    left = f"({OPEN}" if math.isinf(low) else f"[{_points(low)}"
    right = f"{OPEN})" if math.isinf(high) else f"{_points(high)}]"
    return f"{left}, {right}"


def bounds(
    low: float | None, high: float | None, *, low_open: bool, high_open: bool
) -> tuple[float, float]:
    """Bounds as floats: infinite where open, nan where there is no interval."""
    return (
        -math.inf if low_open else math.nan if low is None else low,
        math.inf if high_open else math.nan if high is None else high,
    )


def maybe(value: float | None, form: Form) -> str:
    """The number in a form of this module; UNDEFINED where there is none."""
    return UNDEFINED if value is None else form(value)


def difference(value: float, low: float, high: float) -> str:
    """A difference of ratings with its bounds: `+212 [180, 245]`."""
    if math.isnan(value):
        return UNDEFINED
    if math.isinf(value):
        if value > 0 and math.isfinite(low):
            return f"≥ {_points(low)}"
        if value < 0 and math.isfinite(high):
            return f"≤ {_points(high)}"
        return UNBOUNDED
    bounds = interval(low, high)
    signed = f"{round(value) + 0:+,}"
    return signed if bounds == UNDEFINED else f"{signed} {bounds}"


def probability(value: float) -> str:
    """A probability with two decimals; what is not 0 or 1 is never shown as such."""
    if math.isnan(value):
        return UNDEFINED
    return _guarded(value, f"{value:.2f}", ("0.00", "1.00"), ("<0.01", ">0.99"))


def percent(
    share: float,
    low: float = math.nan,
    high: float = math.nan,
    *,
    decimals: int = 1,
    sign: Literal["", "+"] = "",
) -> str:
    """A share as percentage: `12.3 % [10.1, 14.9]`, with a sign `+3.2 % [2.1, 4.3]`.

    Without a sign, what is not 0 or all is never shown as such.
    """
    if math.isnan(share):
        return UNDEFINED
    # Rounded first: what is shown as 0.0 has no sign to lose.
    points = [round(100 * one, decimals) + 0.0 for one in (share, low, high)]
    text, *ends = (f"{one:.{decimals}f}" for one in points)
    if sign:
        text = f"{points[0]:+.{decimals}f} %"
    else:
        least, most = ("<0.1 %", ">99.9 %") if decimals else ("<1 %", ">99 %")
        whole = (f"{0:.{decimals}f} %", f"{100:.{decimals}f} %")
        text = _guarded(share, f"{text} %", whole, (least, most))
    return text if math.isnan(low) or math.isnan(high) else f"{text} [{', '.join(ends)}]"


def level(share: float) -> str:
    """A confidence level: `95 %`."""
    return f"{100 * share:g} %"


def _guarded(value: float, text: str, ends: tuple[str, str], beyond: tuple[str, str]) -> str:
    if text == ends[0] and value > _NOTHING:
        return beyond[0]
    if text == ends[1] and value < 1.0 - _NOTHING:
        return beyond[1]
    return text


def duration(seconds: float | None) -> str:
    """`0.4 s`, `12 s`, `3 min 12 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds is None or not math.isfinite(seconds):
        return UNDEFINED
    if seconds < _DECIMAL_BELOW_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _SECONDS_PER_MINUTE:
        return f"{whole} s"
    if whole < _SECONDS_PER_HOUR:
        return f"{whole // _SECONDS_PER_MINUTE} min {whole % _SECONDS_PER_MINUTE:02d} s"
    if whole < _SECONDS_PER_DAY:
        minutes = whole % _SECONDS_PER_HOUR // _SECONDS_PER_MINUTE
        return f"{whole // _SECONDS_PER_HOUR} h {minutes:02d} min"
    hours = whole % _SECONDS_PER_DAY // _SECONDS_PER_HOUR
    return f"{whole // _SECONDS_PER_DAY} d {hours} h"


def clock(seconds: float) -> str:
    """Elapsed time that lines up: `0:01:10`."""
    whole = int(seconds)
    minutes = whole % _SECONDS_PER_HOUR // _SECONDS_PER_MINUTE
    return f"{whole // _SECONDS_PER_HOUR}:{minutes:02d}:{whole % _SECONDS_PER_MINUTE:02d}"


def money(amount: float | None) -> str:
    """An amount in the recipe's currency: `12.40`; UNDEFINED where a price is not known."""
    if amount is None or math.isnan(amount):
        return UNDEFINED
    if 0 < amount < _SMALL_MONEY or amount >= 1e15:
        return f"{amount:.2g}"
    return f"{amount:,.2f}"


AT_LEAST, AT_MOST = "at least ", "at most "
"""Words before an amount that bounds what is not known; those before an exact one are empty."""


def bound(bounds: Collection[str]) -> str:
    """The bound of a sum, by those of its parts."""
    found = {*bounds} - {""}
    return "about " if len(found) > 1 else "".join(found)


def known(n: int, bound: str) -> str:
    """A count as known: whole, a bound, or unknown where nothing of it is."""
    return "unknown" if bound == AT_LEAST and not n else f"{bound}{compact(n)}"


def spent(amount: float | None, bound: str) -> tuple[str, ...]:
    """Money in words: `12.40 spent`, `at least 12.40 spent`; empty where no model has a price."""
    return () if amount is None else (f"{bound}{money(amount)} spent",)


def money_of(amount: float, bound: float) -> str:
    """An amount and its bound with digits enough to tell them apart: `0.0119 of 0.012`."""
    if max(amount, bound) >= 1e15:
        return f"{amount:.4g} of {bound:.4g}"
    exponent = Decimal(f"{bound:.4g}").normalize().as_tuple().exponent
    n_digits = min(12, -exponent) if isinstance(exponent, int) else 0
    n_more = n_digits + 1 if n_digits > 1 else 2
    return f"{amount:,.{n_more}f} of {bound:,.{max(2, n_digits)}f}"


def at_most(value: int, *, exact: bool) -> str:
    """A count, or the bound `≤ 1,200` where it is one."""
    return count(value) if exact or value == 0 else f"≤ {count(value)}"


def rank(best: int, worst: int) -> str:
    """A rank or the range of ranks that the data leave open, with an en dash between the ends."""
    return str(best) if best == worst else f"{best}{EN_DASH}{worst}"
