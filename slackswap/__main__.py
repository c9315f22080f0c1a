"""``python -m slackswap``: the command line, where the script is not on the path."""

import importlib

# By name: the ground floor imports no other room.
if __name__ == "__main__":
    importlib.import_module("slackswap.cli.main").run()
