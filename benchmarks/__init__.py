"""Measurements of this package beside its targets and its peers; see ``docs/benchmarks.md``."""
