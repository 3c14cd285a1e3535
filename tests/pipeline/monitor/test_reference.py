"""The reference of the views names their columns, with their types, in their order."""

from __future__ import annotations

import re
from pathlib import Path

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.view_statements import read_statements

TOP = Path(__file__).parents[3]


def columns_of(sections: dict[str, str], view: str) -> list[tuple[str, str]]:
    """Return a view's columns and types: those of the view that its section refers to, and more."""
    own = re.findall(r"^\| `(\w+)` \| (.*?) \| \S", sections[view], re.MULTILINE)
    first = re.search(r"the columns of \[`(\w+)`\]\(#\w+\)(?: before `(\w+)`)?", sections[view])
    if first is None:
        return own
    columns = columns_of(sections, first[1])
    names = [name for name, _ in columns]
    return columns[: names.index(first[2]) if first[2] else None] + own


def test_the_reference_has_every_column_of_every_view(root: str) -> None:
    text = (TOP / "schemas/VIEWS.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    columns = {view: columns_of(sections, view) for view in sections}
    told = {view: found for view, found in columns.items() if found}
    catalog = Catalog(root)
    statements = read_statements("views.sql").values()
    views = [each.name for each in statements if each.sql.startswith("CREATE VIEW")]
    real = {
        view: [(row[0], _short(row[1])) for row in catalog.query(f"DESCRIBE {view}").rows]
        for view in views
    }
    assert told == real


def _short(type_: str) -> str:
    plain = type_.replace('"', "")
    if plain.startswith("STRUCT(") and len(plain) > 60:
        return "STRUCT[]" if plain.endswith("[]") else "STRUCT"
    return plain


def test_the_readme_leads_to_the_reference() -> None:
    assert "(schemas/VIEWS.md)" in (TOP / "README.md").read_text("utf-8")
