"""The report as one HTML file that needs no network and trusts nothing that a model wrote.

`material` is what it is made of, `figures` and their neighbours turn that into figures (plain data
with a table each), `charts` and `drawing` draw them where the extra `[report]` is installed, and
`page` puts all of it into one file.
"""
