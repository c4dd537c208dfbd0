"""How much of something there is, as a character and as a colour: each tells it without the other."""

from __future__ import annotations

from rich.style import Style

# From how much on each character stands; below the first, and above 0, is a dot. Twice: for terminals with ASCII only.
_FROM = (0.05, 0.2, 0.4, 0.7)
_SHADES, _ASCII = "·░▒▓█", ".:+#@"
_COLOURS = ((28, 40, 90), (170, 50, 110), (255, 190, 92))  # from cold over warm to hot


def shade(weight: float, ascii_only: bool = False) -> str:
    """A character for a weight from 0 to 1; a space for none at all."""
    return (_ASCII if ascii_only else _SHADES)[sum(weight >= each for each in _FROM)] if weight > 0 else " "


def write_scale(ascii_only: bool = False) -> str:
    """What the characters mean."""
    characters = _ASCII if ascii_only else _SHADES
    steps = "  ".join(f"{character} {start}" for character, start in zip(characters[1:], _FROM, strict=True))
    return f"{characters[0]} under {_FROM[0]}  {steps} and more; blank: 0"


def colour_behind(weight: float) -> Style:
    """For a figure: a background from dark to bright, and what can be read on it; none where it is next to nothing."""
    if weight < 0.005:
        return Style(dim=True)
    return Style(color="#ffffff" if weight < 0.65 else "#000000", bgcolor=_mix(weight))


def colour_of(weight: float) -> Style:
    """For a shade."""
    return Style(color=_mix(0.5 + 0.5 * weight)) if weight >= _FROM[0] else Style(dim=True)


def _mix(weight: float) -> str:
    start = 0 if weight < 0.5 else 1
    share = min(2 * weight, 2) - start
    ends = zip(_COLOURS[start], _COLOURS[start + 1], strict=True)
    parts = (round(cold + (hot - cold) * share) for cold, hot in ends)
    return "#" + "".join(f"{part:02x}" for part in parts)
