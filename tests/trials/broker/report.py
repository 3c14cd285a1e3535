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

    `choices` counts what differs by a row of the page of differences. `held_again` is the number of
    conversations that differed and were held again, slowly: what did not differ then is not among
    `different`. None in a report of before they were counted.
    """

    seed: int
    conversations: int
    answers: int
    equal: int
    codes: dict[str, int]
    choices: dict[str, int]
    seconds: float
    different: list[Difference]
    held_again: int | None = None

    def rows(self) -> list[tuple[str, str]]:
        """What was asked and answered, a figure each."""
        choices = [(f"by choice: {name}", f"{count:,}") for name, count in self.choices.items()]
        codes = [(f"answers: {name}", f"{count:,}") for name, count in sorted(self.codes.items())]
        again = [] if self.held_again is None else [("held again", f"{self.held_again:,}")]
        return [
            ("conversations", f"{self.conversations:,}"),
            *again,
            ("answers that were compared", f"{self.answers:,}"),
            ("equal", f"{self.equal:,}"),
            ("different", f"{len(self.different):,}"),
            *choices,
            ("seconds", f"{self.seconds:.0f}"),
            *codes,
        ]
