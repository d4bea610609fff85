"""Pictures are made by scripts in the repository, and are what these scripts make."""

import runpy
import xml.etree.ElementTree as ET

from docs.examples import ROOT

SCRIPT = ROOT / "docs" / "pictures" / "architecture.py"
SVG = "{http://www.w3.org/2000/svg}"


def test_architecture() -> None:
    """The file is what its script draws, is well-formed, and nothing in it lies outside."""
    drawn: str = runpy.run_path(str(SCRIPT))["draw"]()
    assert SCRIPT.with_suffix(".svg").read_text("utf-8") == drawn
    root = ET.fromstring(drawn)  # noqa: S314 - our own
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = root.findall(f"{SVG}rect")[1:]
    assert len(boxes) > 10
    for box in boxes:
        assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
        assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height
    words = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    for name in ("Telesto", "STOMP", "ZeroMQ", "HTTP", "Tribbler", "PostgreSQL", "Spark"):
        assert name in words
