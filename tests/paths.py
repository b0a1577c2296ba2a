"""Where the tests and their helpers lie, for tests and benchmarks that start processes of their own."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
FOLDERS = [str(TESTS), *sorted(str(folder) for folder in TESTS.iterdir() if any(folder.glob("test_*.py")))]
"""The folders of helpers: `pythonpath` of pyproject.toml, where pytest finds them."""
