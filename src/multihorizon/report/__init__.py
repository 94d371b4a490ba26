"""What a fit found, in numbers, words, figures and a page.

Read in this order: `findings` and `misfit` (the numbers), `formats`, `advice` and `words` (how they are told), `identifiability`
and `analysis` (what `mh.analyse` runs), `plots` and `fit_figures` (pictures), `html` (blocks of a page), `fit_page` (the report),
`fit_report` (the files of a fit).
"""
