"""Planners by rule: SlackSwap, and prior systems as planners of the same problem."""
