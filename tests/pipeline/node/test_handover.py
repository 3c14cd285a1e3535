"""How a change of partitions reaches a node's stream."""

from __future__ import annotations

from pipeline.node.bootstrap import prepare_bootstrap
from pipeline.node.handover import begun_with
from pipeline.stream.bootstrap import Bootstrap


class Checkpoints:
    """An engine of which only the streaming checkpoint's last offset is asked."""

    planned: str | None = None

    def last_planned(self, _checkpoint: str) -> str | None:
        return self.planned


def test_a_checkpoint_of_another_release_is_begun_anew(root, caplog):
    engine, uri = Checkpoints(), f"{root}/bootstrap"
    engine.planned = '{"bootstrap":[1,0],"requests":[7,0]}'
    assert begun_with(engine, "checkpoint", uri) is None, "there is no bootstrap"
    prepare_bootstrap(root, uri)
    assert begun_with(engine, "checkpoint", uri) == (Bootstrap(uri, 0, 0), -1)
    engine.planned = None
    assert begun_with(engine, "checkpoint", uri) is None, "nothing is planned"
    assert "another release" not in caplog.text
    engine.planned = '{"sourceVersion":1,"reservoirVersion":5}'
    assert begun_with(engine, "checkpoint", uri) is None
    assert "another release" in caplog.text
