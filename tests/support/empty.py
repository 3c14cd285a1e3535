"""A machine that decides nothing: the floor with which the coordinator's own cost is compared."""

from __future__ import annotations

from random import Random

from group_coordinator.coordinator.group.batch import BatchResult, BatchSettings, GroupOutput
from group_coordinator.schemas.decoding import Malformed, decode_request
from group_coordinator.schemas.messages import RejectedRequest, Response

# Longer than any benchmark runs.
_TIMER_MS = 3_600_000
_NOISE_BYTES = 1 << 20


class EmptyMachine:
    """A machine that answers each request with error 0, and keeps one byte of state a group.

    Responses have no body. `stored` bytes are written for a group in each batch, with a timer,
    because a coordinator must also write the time of a group's last heartbeat. 0 writes nothing.
    The bytes are random, almost as a coordinator's: the JVM passes state to Python as UTF-8 text
    and compresses stored state, and spends 3 us less on 600 zeros.
    """

    def __init__(self, stored: int = 0) -> None:
        self._stored = stored
        self._noise = Random(stored).randbytes(_NOISE_BYTES if stored else 0)
        self._at = 0

    def process(
        self,
        group_id: str | None,  # noqa: ARG002 (the events name it too)
        state: bytes | None,
        events: list[str],
        now: int,
    ) -> BatchResult:
        """Answer each event; reject one without a request id or group id."""
        responses: list[Response] = []
        rejected: list[RejectedRequest] = []
        for text in events:
            request = decode_request(text)
            if request.request_id is None or request.group_id is None:
                reason = request.message if isinstance(request, Malformed) else "no group_id"
                rejected.append(RejectedRequest(now, reason, text))
            else:
                responses.append(
                    Response(
                        request.request_id,
                        request.group_id,
                        request.api,
                        0,
                        "NONE",
                        responded_at=now,
                    )
                )
        output = GroupOutput(responses, [], [], rejected) if events else None
        if self._stored and events:
            return BatchResult(self._some_bytes(), now + _TIMER_MS, output)
        return BatchResult(state=b"\x00", deadline=None, output=output, changed=state is None)

    def _some_bytes(self) -> bytes:
        """Return `stored` bytes, other ones in each call."""
        self._at = (self._at + self._stored) % (_NOISE_BYTES - self._stored)
        return self._noise[self._at : self._at + self._stored]

    def set_settings(self, settings: BatchSettings) -> None:
        """Do nothing: the empty machine has no settings."""
