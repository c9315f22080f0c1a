"""Suites shipped with the package: TOML files that say which cells to run."""
