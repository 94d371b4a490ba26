"""Lists of pages as cards: the title of each page, a line on it, and a picture where there is one.

```{cards}
page | a line on what it has | picture
```
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata


class Cards(SphinxDirective):
    """One card for each line of the directive."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the cards."""
        cards = nodes.container(classes=["cards"])
        for line in filter(None, self.content):
            page, words, picture = (part.strip() for part in line.split("|"))
            cards += self.card(page, words, picture)
        return [cards]

    def card(self, page: str, words: str, picture: str) -> nodes.container:
        """Return one card; the title is that of the page, so it cannot be out of date."""
        title = addnodes.pending_xref(
            "",
            nodes.inline(classes=["doc"]),
            refdomain="std",
            reftype="doc",
            reftarget=page,
            refexplicit=False,
            refdoc=self.env.docname,
            refwarn=True,
        )
        card = nodes.container(classes=["card"])
        if picture:
            card += nodes.image(uri=picture, alt="")
        heading = nodes.paragraph(classes=["card-title"])
        heading += title
        card += heading
        sentence, _ = self.state.inline_text(words, self.lineno)
        text = nodes.paragraph()
        text += sentence
        card += text
        return card


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("cards", Cards)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
