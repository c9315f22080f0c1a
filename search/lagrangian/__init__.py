"""Bounds by Lagrangian relaxation: the memory of one instant and the link, priced."""
