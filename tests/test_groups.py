"""The groups in which all tests run, and the selection of --quick."""

from fix_quick import LEFT_OUT, TESTS
from groups import GROUPS, ROOT, without_the_others


def test_every_file_is_in_one_group() -> None:
    """No file with tests is forgotten, and none runs twice."""
    for file in TESTS.rglob("test_*.py"):
        paths = {str(each.relative_to(ROOT)) for each in (file, *file.parents) if each.is_relative_to(TESTS)}
        groups = [
            group
            for group in GROUPS
            if paths.intersection(group.split())
            and not any(f"--ignore={path}" in without_the_others(group) for path in paths)
        ]
        assert len(groups) == 1, (file, groups)


def test_what_quick_leaves_out_exists() -> None:
    """A file or folder that was renamed is renamed in the list, too."""
    assert [path for path in LEFT_OUT if not list(TESTS.glob(f"{path.rstrip('/')}*"))] == []
