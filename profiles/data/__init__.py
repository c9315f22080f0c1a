"""Profiles shipped with the package: compressed JSON, found by file name."""
