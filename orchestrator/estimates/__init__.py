"""Statistics of a column of rows: a file each, or a class in a file that several share."""

from typing import Final

KINDS: Final = {"quantile": "_shares:Quantile", "share_above": "_shares:ShareAbove"}
