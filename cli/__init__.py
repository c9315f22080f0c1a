"""The command line: one small module a command, imported only when that command runs."""
