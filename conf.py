"""How the documentation site is built from docs/: see ``make docs``.

Pages are Markdown that reads as well without the site. Nothing on them comes from elsewhere: no fonts, no scripts, no
counters; the site works from a folder, without a server.
"""

project = "pyoco-server"
extensions = ["myst_parser", "tools.sphinx_extension"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = [
    "toc.empty_glob",  # a part of the book may have no page yet
    "misc.highlighting_failure",  # examples leave things out with an ellipsis
]

html_theme = "furo"
html_title = "pyoco-server"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
