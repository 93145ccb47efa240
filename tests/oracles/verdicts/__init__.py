"""Every statement of every output about a run, held against all the others.

`studies` draws small designs and `runs` runs them, with verdicts of `studied`, a back-end that
needs no server. `outputs` and `reading` make facts of what the commands print and write; `rules`
says which of them contradict each other. `relations` changes a study in ways that must not change
its answers.
"""
