"""Findings of `nuncius doctor`, with their recommendations."""

from enum import StrEnum

import msgspec


class State(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    check: str
    state: State
    detail: str
    advice: str = ""


def ok(check: str, detail: str) -> Finding:
    return Finding(check, State.OK, detail)


def warn(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, State.WARN, detail, advice)


def fail(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, State.FAIL, detail, advice)
