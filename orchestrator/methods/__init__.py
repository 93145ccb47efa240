"""Methods of evaluation: one file each; those of reward models share one."""

from typing import Final

KINDS: Final = {"reward": "_reward:Reward", "reward_pairs": "_reward:RewardPairs"}
