"""The viewer: a local web page in which every number of a run is followed down to its tokens.

`serve` is the process, `app` and `guard` what it answers and to whom; the others say what is in an
answer. Nothing here writes into a run directory.
"""
