"""`python -m ccheck` is `ccheck`."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - pathlib is not imported yet
    # Python looks for modules in the current folder first, which can be a stranger's; `ccheck` does not.
    del sys.path[0]

from .cli import main

main()
