"""Durations and sizes as users write them: 7d, 90s, 10GB."""

import re

import typer

_SECONDS = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {"": 1, "b": 1} | {
    f"{letter}{tail}": base**power
    for power, letter in enumerate("kmgt", 1)
    for tail, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_AMOUNT = re.compile(r"(\d+)\s*([a-zA-Z]*)")


def seconds(text: str) -> int:
    return _amount(text, _SECONDS, "a time is a number with s, min, h, d or w, as in 7d")


def size(text: str) -> int:
    return _amount(text, _BYTES, "a size is a number with kB, MB, GB or TB, as in 10GB")


def _amount(text: str, units: dict[str, int], complaint: str) -> int:
    found = _AMOUNT.fullmatch(text.strip())
    unit = units.get(found[2].lower()) if found else None
    if not found or not unit or not int(found[1]):
        raise typer.BadParameter(f"{complaint}, not {text!r}", param_hint="AMOUNT")
    return int(found[1]) * unit
