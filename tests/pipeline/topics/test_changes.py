"""Tables that go on in a way in which a topic cannot: each is named, and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import PyFileSystem
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.delta import identity
from group_coordinator.pipeline.delta.store_files import OutsideTable, StoreFiles, open_files
from group_coordinator.pipeline.topics import TableReplaced, create_table_topic, table_log
from group_coordinator.pipeline.topics.topic_errors import CannotFollow
from tests.pipeline.topics.tables import append, caught_up, define, ends, opened, records, rows


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of ten rows in two commits."""
    table = str(tmp_path / "rows")
    append(table, range(5))
    append(table, range(5, 10))
    return table


def overwrite(uri: str) -> None:
    write_deltalake(uri, rows(range(3)), mode="overwrite")


def delete(uri: str) -> None:
    DeltaTable(uri).delete("n = 3")


def update(uri: str) -> None:
    DeltaTable(uri).update({"n": "n + 1"}, predicate="n = 3")


@pytest.mark.parametrize(
    ("change", "named"), [(overwrite, "WRITE"), (delete, "DELETE"), (update, "UPDATE")]
)
def test_a_commit_that_changes_rows_ends_the_topic_before_it(
    root: str, uri: str, change: Callable[[str], None], named: str
) -> None:
    define(root, uri, 1)
    topics = opened(root)
    append(uri, [10])
    change(uri)
    append(uri, [11])
    for each in (caught_up(topics), opened(root)):
        assert ends(each) == [(0, 11)]
        assert f"version 3 of {uri} ({named}) removes or changes rows" in str(each.problems()["t"])
        assert "`topics reindex`" in str(each.problems()["t"])
        assert [record.key for record in records(each, 0)] == [b"id-%d" % n for n in range(11)]


@pytest.mark.slow
def test_a_topic_is_begun_anew_at_offsets_after_all_others(root: str, uri: str) -> None:
    define(root, uri, 1)
    follower = opened(root)
    for _ in range(2):
        DeltaTable(uri).delete("n = 3")
        done = CliRunner().invoke(make_app(), ["topics", "reindex", "t", "--root", root])
        assert done.exit_code == 0, done.output
        assert "topic 't' has 9 records of its table" in done.output
    append(uri, [10])
    for each in (caught_up(follower), opened(root)):
        assert each.problems() == {}
        assert ends(each) == [(19, 29)]
        found = [record.key for record in records(each, 0)]
        assert sorted(found[:9]) == sorted(b"id-%d" % n for n in range(10) if n != 3)
        assert found[9:] == [b"id-10"]


def test_a_table_that_is_dropped_is_named_and_not_served(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    define(root, uri, 1)
    topics = opened(root)
    shutil.rmtree(uri)
    for each in (caught_up(topics), opened(root)):
        with pytest.raises(TableReplaced, match=r"the Delta table at .* does not exist any more"):
            each.read("t", 0, 0, 100, 1)


@pytest.mark.parametrize("commits", [1, 2, 5], ids=["shorter", "as long", "longer"])
def test_another_table_in_its_place_is_named_and_not_served(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    define(root, uri, 1)
    topics = opened(root)
    shutil.rmtree(uri)
    for n in range(commits):
        append(uri, [n])
    for each in (caught_up(topics), opened(root)):
        assert "was replaced" in str(each.problems()["t"])
        with pytest.raises(TableReplaced, match="Delete the topic and create it again"):
            each.log_end("t", 0)


def test_a_log_that_was_cleaned_up_behind_the_index_is_named(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    monkeypatch.setattr("group_coordinator.pipeline.delta.identity.GONE_CHECK_S", 0)
    define(root, uri, 1)
    topics = opened(root)
    for n in range(10, 13):
        append(uri, [n])
    DeltaTable(uri).create_checkpoint()
    for version in range(3):
        (Path(uri) / "_delta_log" / f"{version:020}.json").unlink()
    for each in (caught_up(topics), opened(root)):
        assert ends(each) == [(0, 10)]
        assert "was cleaned up before version 2 was indexed" in str(each.problems()["t"])
    topics.reindex("t")
    assert (ends(caught_up(topics)), topics.problems()) == ([(10, 23)], {})


def test_a_table_that_turns_into_one_with_deletion_vectors_ends_the_topic(
    root: str, uri: str
) -> None:
    define(root, uri, 1)
    topics = opened(root)
    (Path(uri) / "_delta_log" / f"{2:020}.json").write_text(
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,'
        '"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}'
    )
    assert "enables deletionVectors, which a topic cannot read" in str(
        caught_up(topics).problems()["t"]
    )
    assert ends(topics) == [(0, 10)]


@pytest.mark.parametrize("how", ["torn", "gone"])
def test_a_file_that_cannot_be_indexed_ends_the_topic_before_it(
    root: str, uri: str, how: str
) -> None:
    define(root, uri, 1)
    topics = opened(root)
    before = set(Path(uri).glob("*.parquet"))
    append(uri, [10])
    (file,) = set(Path(uri).glob("*.parquet")) - before
    if how == "torn":
        file.write_bytes(b"PAR1 and no more")
    else:
        file.unlink()
    for each in (caught_up(topics), opened(root)):
        assert ends(each) == [(0, 10)]
        assert f"version 2 of {uri}" in str(each.problems()["t"])
        assert file.name in str(each.problems()["t"])


def add_file(uri: str, path: str) -> None:
    """Commit a file to a table as one that is there already."""
    handle = DeltaTable(uri)
    added = {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    commit = Path(uri, "_delta_log", f"{handle.version() + 1:020}.json")
    commit.write_text(json.dumps({"add": added}))


@pytest.mark.parametrize("is_begun_before", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        "../secret/{}",
        "%2e%2e/secret/{}",
        "..%2Fsecret%2F{}",
        "a/../../secret/{}",
        "{root}/secret/{}",
        "%2F{root}/secret/{}",
        "file://{root}/secret/{}",
        "file:{root}/secret/{}",
    ],
)
def test_a_file_outside_of_the_table_s_folder_ends_the_topic_before_it(
    root: str, uri: str, tmp_path: Path, path: str, is_begun_before: bool
) -> None:
    secret = tmp_path / "secret"
    append(str(secret), [99])
    (name,) = (each.name for each in secret.glob("*.parquet"))
    if is_begun_before:
        define(root, uri, 1)
        opened(root)
    add_file(uri, path.format(name, root=tmp_path))
    if not is_begun_before:
        define(root, uri, 1)
    topics = opened(root)
    assert "lies outside of it" in str(topics.problems()["t"])
    assert ends(topics) == [(0, 10)]
    assert len(records(topics, 0)) == 10


def test_a_snapshot_has_no_file_outside_of_the_table_s_folder(root: str, uri: str) -> None:
    add_file(uri, "../secret")
    log = table_log.TableLog(uri, str(DeltaTable(uri).metadata().id))
    with pytest.raises(CannotFollow, match="lies outside of it"):
        log.snapshot(2)


@pytest.mark.parametrize("path", ["../secret", "a/../secret", "/etc/passwd", "file:///etc/passwd"])
def test_no_file_outside_of_a_table_s_folder_is_opened(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "t" / "a").mkdir(parents=True)
    for files in (open_files(str(tmp_path / "t")), PyFileSystem(StoreFiles(str(tmp_path / "t")))):
        with pytest.raises(OutsideTable, match="lies outside"):
            files.open_input_file(path)


def test_a_path_is_decoded_once(root: str, uri: str) -> None:
    log = table_log.TableLog(uri, str(DeltaTable(uri).metadata().id))
    add_file(uri, "%252e%252e/secret")
    commit = log.read(2)
    assert commit is not None
    assert [each.path for each in commit.added] == ["%2e%2e/secret"]


def test_one_topic_s_failure_does_not_disturb_another(root: str, uri: str, tmp_path: Path) -> None:
    define(root, uri, 1)
    other = str(tmp_path / "other")
    append(other, range(2))
    create_table_topic(root, "u", 1, other, key="id")
    topics = opened(root)
    DeltaTable(uri).delete("n = 3")
    append(other, range(2, 4))
    caught_up(topics)
    assert list(topics.problems()) == ["t"]
    assert topics.log_end("u", 0) == 4
