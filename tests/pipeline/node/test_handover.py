"""How a change of partitions reaches a node's stream."""

from __future__ import annotations

from pipeline.node.bootstrap import prepare_bootstrap
from pipeline.node.handover import begun_with
from pipeline.stream.bootstrap import Bootstrap
from pipeline.stream.offset import Planned


class Checkpoints:
    """An engine of which only the streaming checkpoint's last offset is asked."""

    def __init__(self) -> None:
        self.offset: str | None = None

    def last_planned(self, _checkpoint: str) -> Planned | None:
        return None if self.offset is None else Planned(7, self.offset)


def test_a_checkpoint_of_another_release_is_begun_anew(root, caplog):
    engine, uri = Checkpoints(), f"{root}/bootstrap"
    engine.offset = '{"bootstrap":[1,0],"requests":[7,0],"run":0,"selection":{}}'
    assert begun_with(engine, "checkpoint", uri) is None, "there is no bootstrap"
    prepare_bootstrap(root, uri)
    assert begun_with(engine, "checkpoint", uri) == (Bootstrap(uri, 0, 0), -1)
    engine.offset = None
    assert begun_with(engine, "checkpoint", uri) is None, "nothing is planned"
    assert "another release" not in caplog.text
    for other in ('{"sourceVersion":1}', '{"bootstrap":[1,0],"requests":[7,0]}'):
        engine.offset = other
        assert begun_with(engine, "checkpoint", uri) is None
    assert "another release" in caplog.text
