"""Every column of every table and view can be named in SQL without quotes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.monitor.catalog import LOGS, Catalog
from group_coordinator.pipeline.monitor.log_tables import COMPUTED
from group_coordinator.pipeline.tables.columns import plain
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.schemas.records import GroupEvent
from group_coordinator.schemas.rows import ALL, SQL_NAMES, sql_columns
from group_coordinator.schemas.tables import GROUP_EVENTS, ON_DEMAND, TABLES, Table, to_arrow

# The tables and views that also have old names.
HAS_OLD_NAMES = {
    *(LOGS.get(each.name, each.name) for each in ALL if SQL_NAMES.keys() & sql_columns(each)),
    "topics",
    "topic_timeline",
}


def columns(catalog: Catalog, name: str) -> list[str]:
    return [row[0] for row in catalog.query(f"DESCRIBE {name}").rows]


def test_duckdb_reads_every_column_by_its_name_without_quotes(root: str) -> None:
    catalog = Catalog(root)
    for name in (*catalog.names(), *COMPUTED):
        old = SQL_NAMES if name in HAS_OLD_NAMES else ()
        named = ", ".join(each for each in columns(catalog, name) if each not in old)
        catalog.query(f"SELECT {named} FROM {name} LIMIT 0")


def test_old_names_are_the_last_columns_and_have_the_same_values(root: str) -> None:
    Appender(table_uri(root, GROUP_EVENTS)).append(
        to_arrow(GROUP_EVENTS, [GroupEvent(5_000, "g", "member_joined")])
    )
    create_topic(root, "t", 2)
    catalog = Catalog(root)
    for name in HAS_OLD_NAMES:
        found = columns(catalog, name)
        old = [each for each in SQL_NAMES if SQL_NAMES[each] in found and each in found]
        assert old, name
        assert found[-len(old) :] == old
        for each in old:
            asked = f'SELECT count(*) FROM {name} WHERE "{each}" IS DISTINCT FROM {SQL_NAMES[each]}'
            assert catalog.query(asked).rows == [(0,)]
    assert catalog.query('SELECT epoch_ms("at") FROM group_events').rows == [(5_000,)]
    assert catalog.query("SELECT epoch_ms(changed_at) FROM group_events").rows == [(5_000,)]
    assert columns(catalog, "topic_changes") == ["topic", "partitions", "changed_at", "at"]


@pytest.mark.parametrize("table", [*TABLES.values(), *ON_DEMAND], ids=lambda table: table.name)
def test_delta_rs_reads_every_table_with_its_own_columns(tmp_path: Path, table: Table) -> None:
    """The tables keep the old names, because nodes of release 0.2 may write to them too."""
    ensure_table(str(tmp_path), table)
    Appender(table_uri(str(tmp_path), table)).append(_row(table))
    rows = DeltaTable(table_uri(str(tmp_path), table)).to_pyarrow_table()
    assert rows.num_rows == 1
    assert {each.name: plain(each.type) for each in rows.schema} == {
        each.name: plain(each.type) for each in table.schema
    }


def _row(table: Table) -> pa.Table:
    """Return one row of nulls; in partition columns 0."""
    return pa.table(
        {
            each.name: pa.array([0 if each.name in table.partition_by else None], each.type)
            for each in table.schema
        },
        schema=table.schema,
    )
