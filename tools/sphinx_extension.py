"""Extend Sphinx for the documentation site: links to files outside of docs/, and diagrams as text.

Pages are also read in the repository, where such links work; ``tools.links`` checks them. The site shows the names of
files that it does not have without a link.
"""

from pathlib import Path
from typing import Any, Final

from docutils import nodes  # type: ignore[import-untyped]  # it ships no type information
from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]  # nor does this
from sphinx import addnodes
from sphinx.application import Sphinx

SHOWN_AS: Final = {"ARCHITECTURE.md": "explanation/architecture", "CONTRIBUTING.md": "explanation/contributing"}
"""Files at the root that are pages of the site."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("doctree-read", settle)
    app.add_lexer("mermaid", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def settle(app: Sphinx, doctree: nodes.document) -> None:
    """Resolve the links of a page."""
    here = Path(app.env.doc2path(app.env.current_document.docname)).parent
    source = Path(app.srcdir).resolve()
    for link in [*doctree.findall(addnodes.pending_xref)]:
        target = _file(link, here) or _file(link, source.parent)  # a page from outside is shown with its own links
        if target is None or target.is_relative_to(source) or not target.is_relative_to(source.parent):
            continue
        page = SHOWN_AS.get(str(target.relative_to(source.parent)))
        if page is not None:
            link["refdomain"], link["reftype"], link["reftarget"] = "doc", "myst", page
            link.attributes.setdefault("reftargetid", None)
        else:
            link.replace_self(link.children)


def _file(link: addnodes.pending_xref, here: Path) -> Path | None:
    """Return the file or folder of a link, if it exists."""
    written = str(link.get("reftarget", "")).partition("#")[0]
    if not written:
        return None
    found = [here / written, here / f"{written}.md"]
    return next((path.resolve() for path in found if path.exists()), None)
