"""Numbers as people read them, in whole-number arithmetic: GPU-hours, GPUs, times, percentages.

GPU-hours come from mGPU-s (thousandths of a GPU x seconds): one GPU-hour is 3,600,000 of them.
"""

from __future__ import annotations

from datetime import UTC, datetime

MGPU_S_PER_GPU_H = 3_600_000
MINUTE, HOUR, DAY = 60, 3600, 86400
_WHOLE_FROM = 10
_DAYS_FROM = 2 * DAY


def rounded(amount: int, unit: int) -> int:
    """``amount / unit`` to the nearest whole number, halves away from 0."""
    sign = -1 if amount < 0 else 1
    return sign * ((2 * abs(amount) + unit) // (2 * unit))


def gpu_hours(amount: int) -> str:
    """mGPU-s as GPU-hours: ``0.011``, ``9.5``, ``648``, ``26,904``: thousandths below 1, tenths below 10, if they
    say more."""
    thousandths = rounded(amount, MGPU_S_PER_GPU_H // 1000)
    if 0 < abs(thousandths) < 1000:
        return _decimal(thousandths, 3).rstrip("0")
    tenths = rounded(amount, MGPU_S_PER_GPU_H // 10)
    if abs(tenths) >= _WHOLE_FROM * 10 or tenths % 10 == 0:
        return f"{rounded(amount, MGPU_S_PER_GPU_H):,}"
    return _decimal(tenths, 1)


def plain_gpu_hours(amount: int) -> str:
    """mGPU-s as GPU-hours for programs: always three decimals, no separators."""
    return _decimal(rounded(amount, MGPU_S_PER_GPU_H // 1000), 3)


def gpus(rate: int) -> str:
    """A rate in thousandths as GPUs: ``8``, ``1.5``, ``0.125``."""
    text = _decimal(rate, 3)
    return text.rstrip("0").rstrip(".")


def _decimal(scaled: int, digits: int) -> str:
    """``scaled / 10**digits`` written out, without separators."""
    whole, rest = divmod(abs(scaled), 10**digits)
    return f"{'-' if scaled < 0 else ''}{whole}.{rest:0{digits}d}"


def percent(part: int, whole: int) -> str:
    """``part / whole`` as ``"92 %"``; ``"-"`` without a whole."""
    return "-" if whole <= 0 else f"{rounded(100 * part, whole)} %"


def span(seconds: int) -> str:
    """Seconds as two units at most: ``45 s``, ``2 min 30 s``, ``15 min``, ``3 h 29 min``, ``6 d 2 h``."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < _WHOLE_FROM * MINUTE:
        return _two(seconds, MINUTE, "min", 1, "s")
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    if seconds < _DAYS_FROM:
        return _two(seconds, HOUR, "h", MINUTE, "min")
    return _two(seconds, DAY, "d", HOUR, "h")


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    first, rest = divmod(seconds, large)
    second = rest // small
    return f"{first} {large_name} {second} {small_name}" if second else f"{first} {large_name}"


def moment_utc(when: int) -> str:
    """A time with its date and zone, where the zone of the reader is not known."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M UTC")
