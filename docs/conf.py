"""Sphinx configuration: `sphinx-build -W docs docs/_build`."""

project = "pair_style pwmlff"
copyright = "the pair_style pwmlff developers"  # noqa: A001
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build"]
smartquotes = False  # two hyphens begin an option
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "description"
