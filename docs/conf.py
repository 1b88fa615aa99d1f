"""How the site is built: ``make docs``."""

from pathlib import Path

import bitl

project, author, release = "bitl", "The bitl developers", bitl.__version__
copyright = "The bitl developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]
# the page of the paper's study is written by a long run; until it is there, links to it lead nowhere
suppress_warnings = [] if (Path(__file__).parent / "reproduction.md").exists() else ["myst.xref_missing"]
html_theme = "furo"
html_title = f"bitl {release}"
html_show_copyright = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_default_options = {"members": True, "undoc-members": False, "exclude-members": "__init__, __new__"}
python_use_unqualified_type_names = True
