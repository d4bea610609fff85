"""Format numbers, sizes and times for people."""

from datetime import UTC, datetime

NONE = "\N{EN DASH}"
_UNITS = ("B", "KB", "MB", "GB", "TB")
_STEPS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def number(value: float | None, *, is_exact: bool = True) -> str:
    """Format a count as alarms and command lines do, with a plus where there may be more."""
    if value is None:
        return NONE
    return f"{int(value):,}" + ("" if is_exact else "+")


def rate(value: float | None) -> str:
    if value is None:
        return NONE
    if value == 0:
        return "0/s"
    return f"{value:.1f}/s" if value < 10 else f"{number(value)}/s"


def size(value: float | None) -> str:
    if value is None:
        return NONE
    amount, unit = float(value), _UNITS[0]
    for larger in _UNITS[1:]:
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def seconds(value: float | None) -> str:
    """Format a duration: milliseconds, seconds, or two larger units."""
    if value is None:
        return NONE
    if value < 1:
        return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    for large, name, small, small_name in _STEPS:
        if value >= large:
            whole, rest = divmod(int(value), large)
            return f"{whole} {name} {rest // small} {small_name}" if rest // small else f"{whole} {name}"
    return NONE


def age(then: datetime | None, now: datetime | None = None) -> str:
    if then is None:
        return NONE
    passed = ((now or datetime.now(UTC)) - then).total_seconds()
    return "now" if passed < 1 else seconds(float(int(passed))).replace(".0 s", " s")


def ago(then: datetime | None, now: datetime | None = None) -> str:
    passed = age(then, now)
    return passed if passed in (NONE, "now") else f"{passed} ago"


def time(value: datetime | None) -> str:
    """Format a time in UTC, which is the same for every visitor."""
    if value is None:
        return NONE
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def parse_time(text: str) -> datetime | None:
    """Parse a time that a visitor typed, in UTC unless it has a zone. Return None if it is invalid."""
    try:
        found = datetime.fromisoformat(text.strip())
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the last second of 9999 in America does not exist in UTC
        return None


def plural(count: int, thing: str, ending: str = "s") -> str:
    return f"{number(count)} {thing}{'' if count == 1 else ending}"
