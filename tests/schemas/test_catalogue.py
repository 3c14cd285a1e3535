"""The catalogue of topics as text: from the driver to its workers, and from release to release."""

from __future__ import annotations

import pytest

from schemas.catalogue import Catalogue, decode_catalogue, encode_catalogue


@pytest.mark.parametrize(
    "catalogue", [None, Catalogue({}), Catalogue({"t": 2}), Catalogue({"t": 2}, {"t": 7, "u": 9})]
)
def test_a_catalogue_comes_back_as_it_was_written(catalogue: Catalogue | None) -> None:
    assert decode_catalogue(encode_catalogue(catalogue)) == catalogue


def test_what_the_last_release_pinned_can_be_read() -> None:
    assert decode_catalogue('{"orders":6,"clicks":1}') == Catalogue({"orders": 6, "clicks": 1})
    assert decode_catalogue("null") is None


def test_the_newest_deletion_dates_a_catalogue() -> None:
    assert Catalogue({}, {"t": 7, "u": 9, "v": 8}).deleted_at == 9
    assert Catalogue({"t": 2}).deleted_at == 0
