"""What a fit found, in numbers, words, figures and a page.

Read in this order: `goal_check` and `findings` (the numbers), `formats`, `advice` and `words` (how they are told),
`identifiability` and `analysis` (what `mh.analyse` runs), `plots` and `walks` (figures by matplotlib), `shell` and `html` (blocks
of a page), `rulers` and `charts` (figures that a reader can explore), `stretches`, `maps` and `explorer` (a slider over the
discount), the figures (`…_figures`), the sections (`…_section`), `fit_page` and the other pages (`…_page`), `people` and
`fit_report` (the files of a fit).

To add a section to a report, write a function that gives a list of `html.Section`, empty where there is nothing to show, and
name it in `fit_page.fit_page`. Its blocks come from `html` and `charts`. Hand `table` and `charts.Mark` the numbers of the
experts that a row or a mark belongs to, so that it follows the reader's choice of experts. Write a look-ahead as `html.Either`,
so that it follows the choice between discount and steps. Nothing else is needed: the script finds both by itself.
"""
