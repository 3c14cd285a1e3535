"""The help says what each verb does, in whole sentences and by what one wants to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app

APP = make_app()
PANELS = ["Try it", "Run", "Ask and change", "Look after the tables", "Say who may do what"]
# What a sentence to the reader does not begin with.
NO_VERB = {"A", "An", "All", "As", "At", "Every", "How", "The", "What", "Where", "Whether", "Who"}


def verbs(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every verb by the words that call it, and its help."""
    command = command or typer.main.get_command(APP)
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from verbs(each, (*path, name))
        else:
            yield (*path, name), each.help or ""


VERBS = dict(verbs())


def told(*words: str) -> str:
    done = CliRunner().invoke(APP, [*words, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_verb_s_help_is_a_sentence_that_says_what_to_do(words: tuple[str, ...]) -> None:
    sentence = " ".join(VERBS[words].partition("\n\n")[0].split())
    assert re.fullmatch(r"[A-Z][a-z]+ .*[.]", sentence)
    assert sentence.split()[0] not in NO_VERB


def test_the_verbs_are_listed_by_what_one_wants_to_do() -> None:
    assert re.findall(r"^([A-Z].*):$", told(), re.M) == ["Options", *PANELS]


@pytest.mark.parametrize("group", ["", *sorted({words[0] for words in VERBS if len(words) > 1})])
def test_the_list_has_every_verb_and_cuts_no_sentence(group: str) -> None:
    listed = " ".join(told(*group.split()).split())
    assert "..." not in listed.partition("Options:")[2]
    for words, text in VERBS.items():
        if [*words[:-1]] == group.split():
            assert f"{words[-1]} {' '.join(text.partition(chr(10) * 2)[0].split())}" in listed


def test_a_shell_completes_verbs_and_options() -> None:
    def completed(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        env = {"_GROUP_COORDINATOR_COMPLETE": "complete_bash", **words}
        return CliRunner().invoke(APP, [], env=env, prog_name="group-coordinator").output.split()

    assert completed("group-coordinator groups de") == ["describe", "delete"]
    assert "--to-earliest" in completed("group-coordinator offsets reset g --to")
