"""What the op graph says before any plan: closures, layers, memory, quick bounds."""
