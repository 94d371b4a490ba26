"""Count private words and the field's words on pages, in messages and in docstrings: `python benchmarks/words.py [COMMIT ...]`.

Without a commit, what is in the folder is counted, with a line for each place where a private word appears if `--where` is given.
Pages are `docs/*.md` and the README without their code; messages are strings in `src` that hold a space, and templates of
pages; docstrings are those of `src`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: What stood where the field has a word of its own.
PRIVATE = {
    "discount, without “factor”": r"\bdiscounts?\b(?! (factor|group|γ|rate))",
    "looks N steps ahead": r"\blooks? (equally far|[^.\s]+ steps? ahead|far(ther)? ahead)|\bsteps ahead\b",
    "95 %": r"\b95 %",
    "95% interval": r"95% intervals?\b",
    "can the data tell": r"can the (data|decisions) tell",
    "what if, ban, paid besides": r"\bwhat-?ifs?\b|\bwhat if\b|\bbans?\b|\bbanned\b|\bpaid besides\b",
    "vary around a common value": r"\bvar(y|ies) around\b",
    "shrunken discount": r"\bshrunken discounts?\b",
    "free distribution": r"\bfree distributions?\b",
    "nearly one goal": r"\bnearly one (goal|reward)\b",
    "could have shown": r"\bcould have shown\b",
    "share out": r"\bshar(e|es|ed|ing) out\b",
    "carry over": r"\bcarr(y|ies|ied|ying) (\w+ )?over\b",
    "states that are vectors": r"\bstates that are vectors\b",
    "moves that take time": r"\bmoves that take time\b",
    "nudge": r"\bnudges?\b",
    "climb, hill": r"\bclimb(s|ed|ing)?\b|\bhills?\b",
    "broken off": r"\bbroken off\b",
    "runs away": r"\bruns? away\b",
    "crowd": r"\bcrowds?\b",
    "room, noun, road": r"\brooms?\b(?! for)|\bnouns?\b|\broads?\b",
    "chance, for a probability": r"\bchances?\b(?! level)(?<!by chance)",
    "told": r"\btold\b",
    "mend": r"\bmend(s|ed|ing)?\b",
    "stand": r"\bstands?\b",
    "received": r"\breceived\b",
    "persons": r"\bpersons\b",
    "walker, somebody": r"\bwalkers?\b|\bsomebody\b",
    "speaks against": r"\bspeaks? (against|for)\b",
    "whoever, whatever": r"\bwhoever\b|\bwhatever\b",
}
#: What readers of the field search for.
FIELD = {
    "discount factor": r"\bdiscount factors?\b",
    "effective (planning) horizon": r"\b(effective|planning) horizons?\b",
    "CI": r"\bCIs?\b",
    "random effect": r"\brandom effects?\b",
    "counterfactual": r"\bcounterfactuals?\b",
    "identified set, partial identification": r"\bidentified sets?\b|\bpartial(ly)? identifi",
    "shrinkage, partial pooling": r"\bshrinkage\b|\bpartial(ly)? pool",
    "parameter recovery": r"\bparameter recovery\b",
    "power analysis": r"\bpower analys[ei]s\b",
    "latent class": r"\blatent class(es)?\b",
    "within-subject, between-subject": r"\b(within|between)-subjects?\b",
    "semi-Markov": r"\bsemi-markov\b",
    "continuous states": r"\bcontinuous states?\b",
    "transfer": r"\btransfers?\b",
    "minimum bonus": r"\bminimum bonus(es)?\b",
}


def git(*command: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def contents(commit: str | None) -> dict[str, str]:
    """Return the text of every page, template and module."""
    listed = git("ls-files") if commit is None else git("ls-tree", "-r", "--name-only", commit)
    wanted = [name for name in listed.splitlines() if name == "README.md" or re.fullmatch(r"docs/.*\.md|src/.*\.(py|html)", name)]
    if commit is None:
        return {name: (ROOT / name).read_text(encoding="utf-8") for name in wanted if (ROOT / name).exists()}
    return {name: git("show", f"{commit}:{name}") for name in wanted}


def texts(name: str, content: str) -> list[tuple[str, int, str]]:
    """Return the kind, the line and the text of each piece of prose in a file."""
    if name.endswith(".md"):
        prose = re.sub(r"^(```|~~~).*?^\1", lambda block: "\n" * block[0].count("\n"), content, flags=re.DOTALL | re.MULTILINE)
        prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", prose)
        return [("pages", line, text) for line, text in enumerate(prose.split("\n"), 1)]
    if name.endswith(".html"):
        prose = re.sub(r"\{[%{#].*?[%}#]\}|<[^>]*>", "", content, flags=re.DOTALL)
        return [("messages", line, text) for line, text in enumerate(prose.split("\n"), 1)]
    tree = ast.parse(content)
    docs = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            docs[id(node.body[0].value)] = node.body[0]
    pieces = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            kind = "docstrings" if id(node) in docs else "messages" if " " in node.value.strip() else ""
            prose = re.sub(r"``?[^`\n]*``?|^\s*(>>>|\.\.\. ).*$", "", node.value, flags=re.MULTILINE)
            if kind:
                pieces += [(kind, node.lineno + line, text) for line, text in enumerate(prose.split("\n"))]
    return pieces


def counts(commit: str | None, where: bool = False) -> dict[str, dict[str, int]]:
    """Return how often each word appears in each kind of text, and the number of words."""
    kinds = ("pages", "messages", "docstrings")
    counted = {word: dict.fromkeys(kinds, 0) for word in (*PRIVATE, *FIELD, "words")}
    for name, content in contents(commit).items():
        for kind, line, text in texts(name, content):
            counted["words"][kind] += len(text.split())
            for word, pattern in (PRIVATE | FIELD).items():
                hits = len(re.findall(pattern, text, re.IGNORECASE))
                counted[word][kind] += hits
                if hits and where and word in PRIVATE:
                    print(f"{word} | {name}:{line}: {text.strip()}")
    return counted


if __name__ == "__main__":
    asked = [argument for argument in sys.argv[1:] if argument != "--where"]
    tables = [counts(commit, "--where" in sys.argv) for commit in asked or [None]]
    for word in tables[0]:
        print(
            f"{word:40}",
            *(f"{table[word]['pages']:7} {table[word]['messages']:7} {table[word]['docstrings']:7} |" for table in tables),
        )
