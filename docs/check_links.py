"""Check the links of a built site, and that its equations are drawn.

A link within the site must lead to a file that is there and, where it names a heading, to that heading. A link to another site
must be in form; whether it is alive is not asked. No page may load anything from another site, so that all of it works offline.
"""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes that make a browser load something, by element; links that are only followed on a click are no such thing.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
#: Elements whose text is no sentence.
CODE = ("code", "pre", "script", "style")
#: An equation that is shown as it was written.
RAW_EQUATION = re.compile(r"\$\$|\\(?:frac|gamma|sum|mathrm|mathbb|log|exp|pi)\b")
#: What a link to another site must look like.
WELL_FORMED = re.compile(r"https://[a-z0-9.-]+\.[a-z]+(/\S*)?")


class Page(HTMLParser):
    """The links and the anchors of one page, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []
        self.code = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element says."""
        says = {name: value or "" for name, value in attrs}
        self.anchors |= {says[name] for name in ("id", "name") if name in says}
        self.code += tag in CODE
        if tag == "a" and "href" in says:
            self.links.append(says["href"])
        elif says.get("rel") != "canonical" and says.get(LOADED.get(tag, "")):
            self.loads.append(says[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        """Note that code, a script or a style has ended."""
        self.code -= tag in CODE

    def handle_data(self, data: str) -> None:
        """Note what is read as a sentence."""
        if not self.code:
            self.text.append(data)


def problems(site: Path) -> list[str]:
    """What is wrong with the links of a built site, one sentence each."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for page in pages.values():
        name = page.path.relative_to(site)
        if raw := RAW_EQUATION.search(" ".join(page.text)):
            wrong.append(f"{name} shows {raw[0]}: an equation is not drawn")
        wrong += [
            f"{name} loads {link} from another site" for link in page.loads if urlsplit(link).netloc
        ]
        local = [
            link
            for link in (*page.links, *page.loads)
            if not urlsplit(link).scheme and not urlsplit(link).netloc
        ]
        wrong += [
            f"{name} links to {link}, which is not there"
            for link in local
            if not _leads_somewhere(link, page, pages)
        ]
        away = [link for link in page.links if urlsplit(link).scheme in ("http", "https")]
        wrong += [
            f"{name} has a link that is not in form: {link}"
            for link in away
            if not WELL_FORMED.fullmatch(link)
        ]
    return wrong


def _leads_somewhere(link: str, page: Page, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    target = (
        (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
    )
    if target not in pages:
        return target.exists()
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors
