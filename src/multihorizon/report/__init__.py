"""Pages and figures of what was found.

Read in this order: `plots` (figures by matplotlib), `charts` (what a page is made of: blocks of plain data, which the templates
in `templates/` draw), `maps` (a task as a picture, and a slider over the discount), `people` (a population, its groups and
conditions), `pages` (the pages of single questions), `fit_page` (the page of a fit), and `files` (what a fit writes).
"""
