"""The figures of the comparison with a broker, and each response that differs."""

from __future__ import annotations

from msgspec import Struct


class Difference(Struct):
    """A response of the broker that differs, with the requests before it and its seed."""

    seed: int
    request: str
    ours: str
    theirs: str
    before: list[str]

    def lines(self) -> list[str]:
        """Return the conversation up to the difference."""
        return [
            f"conversation {self.seed}:",
            *(f"  {each}" for each in self.before),
            f"  {self.request}",
            f"    ours    {self.ours}",
            f"    broker  {self.theirs}",
        ]


class BrokerReport(Struct):
    """The figures of a trial; `codes` counts the broker's answers by API and error.

    `choices` counts expected differences by row of the page of differences. `held_again` counts the
    conversations that differed and were repeated slowly; only those that differed again are in
    `different`. It is None in older reports.
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
        """Return the report as rows of a figure and its value."""
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
