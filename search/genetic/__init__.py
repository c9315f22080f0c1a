"""Genetic search over the actions of a plan."""
