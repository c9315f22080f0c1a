"""Plans side by side: differences, timelines, traces."""
