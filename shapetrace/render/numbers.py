"""How differences and entries are written."""

from __future__ import annotations

import math


def write_number(number: float) -> str:
    """`4.2e-07`; 0 where it is exactly that."""
    return "0" if number == 0 else "inf" if math.isinf(number) else f"{number:.1e}"


def write_entries(one: float, other: float) -> tuple[str, str]:
    """Two entries with as many digits as tell them apart, four at least and nine at most."""
    for digits in range(4, 10):
        written = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if written[0] != written[1]:
            break
    return written
