"""Findings of checks: what is wrong, and what to do about it."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    check: str
    state: Severity
    detail: str
    advice: str = ""


def ok(check: str, detail: str) -> Finding:
    return Finding(check, Severity.OK, detail)


def warn(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, Severity.WARN, detail, advice)


def fail(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, Severity.FAIL, detail, advice)


def sentence(text: str) -> str:
    """Begin a detail or an advice with a capital letter."""
    return text[:1].upper() + text[1:]


def problems(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that are not ok, failures first."""
    return tuple(
        sorted(
            (each for each in found if each.state != Severity.OK),
            key=lambda each: each.state != Severity.FAIL,
        )
    )
