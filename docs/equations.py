"""Equations as MathML: browsers draw it by themselves, readers of screens speak it, and nothing is loaded from the network.

A page has `$…$` in its sentences and `$$…$$` between them, in the LaTeX that latex2mathml knows. It draws no `aligned`: write one
equation per `$$`.
"""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator


def to_mathml(latex: str, display: str = "inline") -> str:
    """Return an equation as MathML; a command that is not known raises ValueError."""
    mathml = convert(latex, display=display)
    if unknown := re.search(r"<m[a-z]+>(\\[a-z]+|&)</m", mathml):
        raise ValueError(f"{unknown[1]} cannot be drawn in the equation {latex}")
    return mathml


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an equation in a sentence."""
    self.body.append(to_mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write an equation on a line of its own."""
    self.body.append(f'<div class="equation">{to_mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
