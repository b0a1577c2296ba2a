"""ccheck: check claims against scientific papers."""
