"""Parts of a page: its frame, and tables. A page is one file without scripts or external files."""

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2430; --muted: #5b6675; --grid: #e3e7ec;
  --c0: #2b6cb0; --c1: #c05621; --c2: #2f855a; --c3: #805ad5; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181f; --ink: #e6e9ee; --muted: #9aa5b4;
  --grid: #2c3440; --c0: #72aee6; --c1: #f0a16a; --c2: #6fca97; --c3: #b79cf0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 2rem 1.5rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 .25rem; }
p { max-width: 46rem; margin: .5rem 0; }
.muted { color: var(--muted); }
.charts { display: grid; gap: 1.25rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
figure { margin: 1rem 0 0; max-width: 46rem; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .25rem; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--muted); font-variant-numeric: tabular-nums; }
.mid { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: var(--grid); }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.level { stroke: var(--c); stroke-width: 1; stroke-dasharray: 5 4; }
.band { fill: var(--c); opacity: .18; }
.bar, .dot { fill: var(--c); }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .9rem .35rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def charts(*drawn: str) -> str:
    return f'<div class="charts">{"".join(drawn)}</div>'


def paragraph(text: str, *, muted: bool = False) -> str:
    kind = ' class="muted"' if muted else ""
    return f"<p{kind}>{escape(text)}</p>"


def heading(level: int, text: str) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"
