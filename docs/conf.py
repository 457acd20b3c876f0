"""Sphinx configuration."""

import importlib.metadata
import os
import shutil
from pathlib import Path

project = "kbo"
author = "The kbo developers"
copyright = "2026, the kbo developers"
release = importlib.metadata.version("kbo")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",
    "sphinx.ext.viewcode",
    "sphinxcontrib.bibtex",
]
bibtex_bibfiles = ["references.bib"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "conf.py", "figures"]

# The tutorials are scripts in the percent format. Sphinx only reads its own folder, so they are copied to it. They run
# when the pages are built, in empty folders, and an error in one of them is an error of the build.
# KBO_DOCS_NOTEBOOKS=off leaves them as text.
HERE = Path(__file__).parent
shutil.rmtree(HERE / "tutorials", ignore_errors=True)
shutil.copytree(
    HERE.parent / "tutorials",
    HERE / "tutorials",
    ignore=shutil.ignore_patterns("*.toml", "__pycache__"),
)
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = os.environ.get("KBO_DOCS_NOTEBOOKS", "force")
if nb_execution_mode == "off":
    suppress_warnings = ["myst-nb.lexer"]  # the language of the cells is known from running them
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
os.environ.pop("MPLBACKEND", None)  # or the pages would have no pictures

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields of named tuples are described once

html_theme = "furo"
html_title = "kbo"
html_static_path = ["tutorials.css"]
html_css_files = ["tutorials.css"]
