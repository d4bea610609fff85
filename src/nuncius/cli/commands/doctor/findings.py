"""What `nuncius doctor` found, and what it advises."""

from enum import StrEnum

import msgspec


class State(StrEnum):
    """How a finding is to be taken."""

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
