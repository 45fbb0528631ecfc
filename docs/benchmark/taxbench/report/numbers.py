"""How numbers are written in reports: enough digits to be honest, no more."""

from __future__ import annotations

from taxbench.statistics import Interval

DASH = "–"


def significant(value: float, digits: int = 3) -> str:
    """Three significant digits without exponents: 0.0123, 1.23, 12.3, 1 230."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    decimals = 0
    while magnitude < 10 ** (digits - 1) and decimals < 6:
        magnitude *= 10
        decimals += 1
    text = f"{value:,.{decimals}f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if decimals > digits else text


def size(count: float | None) -> str:
    """Bytes in decimal units: 317 MB."""
    if count is None:
        return DASH
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{significant(value)}\u00a0{unit}"


def times(value: float) -> str:
    """A ratio: 0.87×."""
    return f"{value:.2f}×" if value < 10 else f"{significant(value)}×"


def with_interval(interval: Interval | None, unit: str = "") -> str:
    """`12.3 [11.9, 12.8] MB/s`; the brackets are left out where one trial gives no interval."""
    if interval is None:
        return DASH
    text = significant(interval.median)
    if interval.low is not None and interval.high is not None:
        text += f" [{significant(interval.low)}, {significant(interval.high)}]"
    return f"{text}{unit}"


def bounds(interval: Interval | None, factor: float = 1.0) -> str:
    """`11.9 – 12.8`, or a note that there is no interval."""
    if interval is None:
        return ""
    if interval.low is None or interval.high is None:
        return "one trial"
    return f"{significant(interval.low * factor)} – {significant(interval.high * factor)}"
