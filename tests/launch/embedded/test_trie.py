"""Labels in one pass: which nodes of their trie see each other."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from launch.embedded.routes import visible
from orchestrator.wire.by_ids import Path, cut

END = 9
paths = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)


@given(st.lists(paths, min_size=1, max_size=8, unique=True))
def test_nodes_see_themselves_and_their_ancestors(given_paths: list[Path]) -> None:
    _, children = cut([[path] for path in given_paths], list(map(str, given_paths)), END)
    nodes = [node for node in children if node]
    sees = visible(nodes)
    assert sees.shape == (len(nodes), len(nodes))
    for row, node in enumerate(nodes):
        seen = {nodes[i] for i in torch.nonzero(sees[row]).flatten().tolist()}
        assert seen == {node[:n] for n in range(1, len(node) + 1)}
