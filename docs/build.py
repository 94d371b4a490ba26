"""Build the documentation site: python docs/build.py [OUTPUT]. Open OUTPUT/index.html; it needs no network.

Warnings are errors, and so are links that lead nowhere (`check_links.py`).
"""

import shutil
import sys
from pathlib import Path

from check_links import problems
from sphinx.cmd.build import main as sphinx_build

DOCS = Path(__file__).parent
#: Pages that the build makes among the others; they are made anew each time.
MADE = (DOCS / "gallery", DOCS / "api" / "names", DOCS / "made")


def main(output: Path) -> int:
    """Build the site and check its links; the exit code is 0 where all is well."""
    for made in MADE:
        shutil.rmtree(made, ignore_errors=True)
    code = sphinx_build(
        ["-W", "-n", "-q", "-E", "--keep-going", "-b", "html", str(DOCS), str(output)]
    )
    wrong = [] if code else problems(output)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    print(f"{len(list(output.rglob('*.html')))} pages in {output}")
    return code or min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "build"))
