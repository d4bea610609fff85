# ruff: noqa: INP001 - a script, part of no package
"""Draws architecture.svg: run it with any Python, it needs nothing else.

python docs/pictures/architecture.py
"""

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 960, 620
INK, SOFT, PAPER = "#1d2733", "#5b6b7c", "#ffffff"
DOORS = (
    ("Telesto, native", "queues, requests", "9001"),
    ("STOMP", "1.0, 1.1, 1.2", "55664"),
    ("ZeroMQ", "exactly once", "5555"),
    ("HTTP", "JSON, events", "5000"),
    ("Tribbler", "timelines, keys", "9009"),
)
COLOURS = {
    "client": ("#eef3f8", "#9db2c7"),
    "door": ("#e3f1ea", "#6aa886"),
    "node": ("#f7f9fb", "#9db2c7"),
    "broker": ("#fdf3dc", "#d0a441"),
    "store": ("#e4ebfa", "#5d7fc4"),
    "spark": ("#fbe6dc", "#d07a4b"),
}


class Picture:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        fill, line = COLOURS[kind]
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
            f'fill="{fill}" stroke="{line}" stroke-width="1.5"/>'
        )

    def text(
        self, x: float, y: float, words: str, *, size: int = 14, bold: bool = False, soft: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{SOFT if soft else INK}"{weight} '
            f'text-anchor="middle">{escape(words)}</text>'
        )

    def arrow(self, x: float, top: float, bottom: float, *, up: bool = False, down: bool = True) -> None:
        ends = (' marker-start="url(#tip)"' if up else "") + (' marker-end="url(#tip)"' if down else "")
        self._parts.append(
            f'<line x1="{x:g}" y1="{top:g}" x2="{x:g}" y2="{bottom:g}" stroke="{SOFT}" '
            f'stroke-width="1.5"{ends}/>'
        )

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="system-ui, sans-serif" role="img">\n'
            "<title>How Nuncius is built: doors, broker, combiner, PostgreSQL, Spark</title>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="{SOFT}"/></marker></defs>\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"


def draw() -> str:
    picture = Picture()
    step, wide = 148, 136
    picture.box(24, 92, 764, 322, "node")
    for number, (name, what, port) in enumerate(DOORS):
        left = 40 + number * step
        middle = left + wide / 2
        picture.box(left, 20, wide, 40, "client")
        picture.text(middle, 45, f"{name.split(',')[0]} clients", size=13)
        picture.arrow(middle, 60, 112, up=True)
        picture.box(left, 116, wide, 74, "door")
        picture.text(middle, 140, name, bold=True)
        picture.text(middle, 160, what, size=12, soft=True)
        picture.text(middle, 178, f"port {port}", size=12, soft=True)
        picture.arrow(middle, 190, 226, up=True)
    picture.box(800, 20, 120, 40, "client")
    picture.text(860, 45, "your database", size=13)
    picture.text(860, 84, "SQL is a door, too:", size=12, soft=True)
    picture.text(860, 100, "nuncius.publish(...)", size=12, soft=True)
    picture.arrow(860, 112, 438, up=True)

    picture.text(650, 404, "a node, stateless; run as many as you like", size=12, soft=True)
    picture.box(40, 230, 732, 64, "broker")
    picture.text(406, 256, "Broker: queues, topics, subscriptions, leases, timelines", bold=True)
    picture.text(406, 278, "one model for all doors; knows no protocol", size=12, soft=True)
    picture.arrow(406, 294, 326, up=True)
    picture.box(40, 330, 732, 56, "broker")
    picture.text(406, 354, "Combiner: while one call is in flight, the next is collected", bold=True)
    picture.text(
        406, 374, "one commit carries hundreds of messages; nobody waits for a timer", size=12, soft=True
    )
    picture.arrow(406, 386, 438, up=True)

    picture.box(24, 442, 912, 82, "store")
    picture.text(480, 466, "PostgreSQL decides", bold=True, size=16)
    picture.text(480, 490, "array-valued procedures, append-only tables; acknowledged means committed")
    picture.text(
        480, 511, "embedded, or any server; replication, failover and backup are its own", size=13, soft=True
    )
    picture.arrow(480, 524, 548, up=True)
    picture.box(24, 552, 912, 54, "spark")
    picture.text(480, 575, "Spark digests", bold=True, size=16)
    picture.text(
        480, 596, "archive, audit, timelines, trends: the whole history is a Delta table", size=13, soft=True
    )
    return picture.svg()


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), "utf-8")
