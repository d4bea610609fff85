"""The lake: topics archived in a Delta table, in files that the broker's tables no longer need to hold.

`table` lists the files, `files` reads one, `writer` writes them, `maintenance` merges small ones and removes
old ones.
"""

from nuncius.pipeline.lake.files import LakeFile
from nuncius.pipeline.lake.table import Lake

__all__ = ["Lake", "LakeFile"]
