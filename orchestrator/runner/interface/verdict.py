"""The verdict on a run held against requirements, in the forms that people and CI read."""

from orchestrator.gates.results import Decision
from orchestrator.report.gate import gate_json, gate_junit, gate_markdown


class GateResult(Decision, frozen=True):
    """The verdict on a run: it fails if one requirement does, and holds if all do.

    Attributes:
        requirements: Each with its verdict, in order.
        run: Metadata of the run.
        against: Metadata of the run that it is compared with; None without one.
        confidence_level: Of all verdicts together.
        level: Of each interval: Bonferroni's, over the requirements that are estimated.
        notes: What to know besides, a sentence each.
        seconds: Time that the decision took.
    """

    def to_json(self) -> str:
        """Return the verdict as one JSON object, with the metadata of the runs.

        Returns:
            The text of `orchestrator gate --format json`.

        Example:
            >>> json.loads(found.to_json())["verdict"]  # doctest: +SKIP
            'holds'
        """
        return gate_json(self)

    def to_markdown(self) -> str:
        """Return the verdict as Markdown, for the summary of a job.

        Returns:
            The text of `orchestrator gate --format markdown`.

        Example:
            >>> print(found.to_markdown())  # doctest: +SKIP
        """
        return gate_markdown(self)

    def to_junit(self, *, pass_unknown: bool = False) -> str:
        """Return the verdict as JUnit XML, with a test case for each requirement.

        Args:
            pass_unknown: Report what is not known yet as skipped instead of as an error.

        Returns:
            The text of `orchestrator gate --junit FILE`.

        Example:
            >>> Path("gate.xml").write_text(found.to_junit())  # doctest: +SKIP
        """
        return gate_junit(self, pass_unknown=pass_unknown)
