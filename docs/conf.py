"""Sphinx configuration."""

import importlib.metadata

project = "kbo"
author = "The kbo developers"
copyright = "2026, the kbo developers"
release = importlib.metadata.version("kbo")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",
    "sphinx.ext.viewcode",
    "sphinxcontrib.bibtex",
]
bibtex_bibfiles = ["references.bib"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "kbo"
