"""`python -m ccheck.cli`."""

from . import main

main()
