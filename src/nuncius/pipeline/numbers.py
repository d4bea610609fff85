"""Options and settings that are numbers."""

from nuncius.pipeline.errors import InvalidOption


def whole(name: str, text: str, least: int = 1, most: int | None = None) -> int:
    """Parse the number that is given for an option or a setting."""
    number = int(text) if text.isdecimal() else -1
    if number < least or (most is not None and number > most):
        limits = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InvalidOption(f"{name} is a number {limits}, not {text!r}")
    return number
