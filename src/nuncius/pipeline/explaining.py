"""Spark's errors as one sentence. They carry tracebacks of Java and of Python workers, which contain the
sentence that was written for the user."""

import re

# The last line of a Python traceback, as in `nuncius.pipeline.errors.InvalidOption: which store?`
_OURS = re.compile(r"^\s*nuncius\.[\w.]+: (?P<words>.+)$", re.MULTILINE)
_PYTHONS = re.compile(r"^(?:[\w.]+\.)?(?P<kind>\w*(?:Error|Exception)): (?P<words>.+)$", re.MULTILINE)
_WITHIN = re.compile(r"terminated with exception: (?P<words>.+)", re.DOTALL)
_CLASS = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")


def explain(error: BaseException) -> str:
    """Return the error as one line."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return " ".join(str(error).split()) or type(error).__name__
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return _tidy(ours[-1])
    if "Traceback (most recent call last)" in text:
        raised = _PYTHONS.findall(text)
        if raised:
            kind, words = raised[-1]
            return f"{kind}: {_tidy(words)}"
    within = _WITHIN.search(text)
    return _tidy((within["words"] if within else text).strip().split("\n")[0])


def _tidy(text: str) -> str:
    return _CLASS.sub("", _STATE.sub("", text)).strip()
