"""SaslAuthenticate (API key 36; KIP-152) after authentication, or on a listener without SASL.

During authentication, `pipeline.gateway.authenticator` answers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext


SaslAuthenticateResponse = struct("SaslAuthenticateResponse")


async def _answer(_call: RequestContext, _request: Any) -> Any:
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
        error_message="there is no authentication to be done now",
        auth_bytes=b"",
        session_lifetime_ms=0,
    )


API = ApiHandler("SaslAuthenticate", _answer)
