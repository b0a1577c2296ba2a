"""Recipes that come with ccheck, one TOML file each; `ccheck.recipe` reads them."""
