"""What README and docs show is what happens."""

import re
from pathlib import Path

import pytest

import nuncius.testing
from docs.examples import PAGES, ROOT, Example, examples, run, steps


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_examples(page: Path, tmp_path: Path) -> None:
    """Every example of a page runs, in order, and prints what the page says."""
    with nuncius.testing.broker() as broker:
        for example in examples(page):
            run(example, broker, tmp_path)


def test_a_wrong_example_is_found(tmp_path: Path) -> None:
    """An example that prints something else than it says, or fails, does not pass."""
    wrong = {
        "sh": ["echo a\n# b\n", "false\n", "echo a\n"],
        "python": ["print(1)\n# 2\n", "raise SystemExit(1)\n"],
        "sql": ["select 1;\n-- 2\n", "select 1;\n"],
    }
    with nuncius.testing.broker() as broker:
        for language, blocks in wrong.items():
            for block in blocks:
                with pytest.raises(AssertionError):
                    run(Example(tmp_path, 1, language, block), broker, tmp_path)


def test_steps() -> None:
    """Comments right below a command are its output; others are only comments."""
    code = "# first\na\n# one\n# two\nb \\\n  c\n\n# only a comment\nd\n"
    assert steps(code, "#") == [("a", ["one", "two"]), ("b \\\n  c", []), ("d", [])]


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / "docs" / "decisions").glob("*.md")], ids=lambda p: p.name)
def test_links(page: Path) -> None:
    """Links between pages lead somewhere."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
