"""Check the links of a built site.

A link within the site must lead to a file that is there and, where it names a heading, to that heading. A link to another site
must be in form; whether it is alive is not asked. No page may load anything from another site, so that all of it works offline.
"""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes that make a browser load something, by element; links that are only followed on a click are no such thing.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
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
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element says."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif found.get("rel") != "canonical" and found.get(LOADED.get(tag, "")):
            self.loads.append(found[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """What is wrong with the links of a built site, one sentence each."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for page in pages.values():
        name = page.path.relative_to(site)
        found += [
            f"{name} loads {link} from another site" for link in page.loads if urlsplit(link).netloc
        ]
        local = [
            link
            for link in (*page.links, *page.loads)
            if not urlsplit(link).scheme and not urlsplit(link).netloc
        ]
        found += [
            f"{name} links to {link}, which is not there"
            for link in local
            if not _leads_somewhere(link, page, pages)
        ]
        away = [link for link in page.links if urlsplit(link).scheme in ("http", "https")]
        found += [
            f"{name} has a link that is not in form: {link}"
            for link in away
            if not WELL_FORMED.fullmatch(link)
        ]
    return found


def _leads_somewhere(link: str, page: Page, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    target = (
        (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
    )
    if target not in pages:
        return target.exists()
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors
