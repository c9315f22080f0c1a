"""Profiles made by arithmetic: analytic models, convolutional networks, random graphs."""
