"""Glass-box features at the positions that SelfEval's released code keeps."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.judgment.glass_box import TokenFeatures, aligned_features


def code_features(logits: ArrayLike, token_ids: Sequence[int], n_prompt: int) -> TokenFeatures:
    """The features as `get_single_evaluation` has them.

    It keeps the positions n_prompt..L-1: the one that predicts the answer's first token is lost,
    the one behind its last token is kept, and `torch.roll` makes the sequence's first token its
    target.
    """
    table = np.asarray(logits, np.float64)
    rolled = [*token_ids, token_ids[0]]
    return aligned_features(np.vstack([table, table[-1:]]), rolled, n_prompt + 1)
