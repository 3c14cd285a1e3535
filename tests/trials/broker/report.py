"""The figures of the trial beside a broker, and each answer that differs."""

from __future__ import annotations

from msgspec import Struct


class Difference(Struct):
    """An answer of the broker's that is not ours, the requests before it, and its seed."""

    seed: int
    request: str
    ours: str
    theirs: str
    before: list[str]

    def lines(self) -> list[str]:
        """The conversation until then."""
        return [
            f"conversation {self.seed}:",
            *(f"  {each}" for each in self.before),
            f"  {self.request}",
            f"    ours    {self.ours}",
            f"    broker  {self.theirs}",
        ]


class BrokerReport(Struct):
    """The figures of a trial; `codes` counts the broker's answers by API and error.

    `choices` counts what differs by a row of the page of differences.
    """

    seed: int
    conversations: int
    answers: int
    equal: int
    codes: dict[str, int]
    choices: dict[str, int]
    seconds: float
    different: list[Difference]

    def rows(self) -> list[tuple[str, str]]:
        """What was asked and answered, a figure each."""
        choices = [(f"by choice: {name}", f"{count:,}") for name, count in self.choices.items()]
        codes = [(f"answers: {name}", f"{count:,}") for name, count in sorted(self.codes.items())]
        return [
            ("conversations", f"{self.conversations:,}"),
            ("answers that were compared", f"{self.answers:,}"),
            ("equal", f"{self.equal:,}"),
            ("different", f"{len(self.different):,}"),
            *choices,
            ("seconds", f"{self.seconds:.0f}"),
            *codes,
        ]
