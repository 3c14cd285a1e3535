"""The APIs that a client uses to set up a connection: ApiVersions and the SASL APIs.

These handlers answer the SASL APIs after authentication, or on a listener without SASL. During
authentication, `pipeline.gateway.authenticator` answers them (KIP-152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.apis import APIS
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext


# --- ApiVersions (API key 18; KIP-35, KIP-511) ----------------------------------------------------


ApiVersionsResponse = struct("ApiVersionsResponse")


async def _api_versions(_call: RequestContext, _request: Any) -> Any:
    return supported_versions(ErrorCode.NONE)


def supported_versions(code: int) -> Any:
    """Return the response with the versions that a gateway supports of each API.

    With UNSUPPORTED_VERSION, it must be encoded in version 0 (KIP-511).
    """
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=api.key, min_version=api.lowest, max_version=api.highest
            )
            for api in sorted(APIS.values(), key=lambda api: api.key)
            if api.versions
        ],
        finalized_features_epoch=-1,
    )


API_VERSIONS = ApiHandler("ApiVersions", _api_versions)


# --- SaslHandshake (API key 17) -------------------------------------------------------------------


SaslHandshakeResponse = struct("SaslHandshakeResponse")


async def _sasl_handshake(_call: RequestContext, _request: Any) -> Any:
    return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[])


SASL_HANDSHAKE = ApiHandler("SaslHandshake", _sasl_handshake)


# --- SaslAuthenticate (API key 36) ----------------------------------------------------------------


SaslAuthenticateResponse = struct("SaslAuthenticateResponse")


async def _sasl_authenticate(_call: RequestContext, _request: Any) -> Any:
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
        error_message="there is no authentication to be done now",
        auth_bytes=b"",
        session_lifetime_ms=0,
    )


SASL_AUTHENTICATE = ApiHandler("SaslAuthenticate", _sasl_authenticate)
