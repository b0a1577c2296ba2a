"""Recipes that come with ccheck, one TOML file each; `ccheck.core.recipe` reads them."""
