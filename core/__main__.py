"""`python -m ccheck`."""

from .cli import main

main()
