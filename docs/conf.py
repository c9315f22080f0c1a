"""Sphinx configuration of the guide: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate import write_generated  # noqa: E402

from slackswap import __version__  # noqa: E402

project = "SlackSwap"
author = "SlackSwap contributors"
project_copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
root_doc = "index"
exclude_patterns = ["_build", "_templates", "_generated"]
templates_path = ["_templates"]

# Notebooks hold no outputs, and `make notebooks` runs them: here they are shown as they are.
nb_execution_mode = "off"
myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

# `Name` in a docstring links to it where there is such a name, and is code where there is none.
default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc sections give the types, in words
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
# Else each field of a dataclass is described twice.
napoleon_use_ivar = True
napoleon_google_docstring = False

html_theme = "furo"
html_title = f"SlackSwap {version}"
html_copy_source = False
html_show_sphinx = False

write_generated(HERE)
