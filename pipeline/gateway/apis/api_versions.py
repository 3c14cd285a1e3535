"""ApiVersions (API key 18): the APIs that are served, with their versions (KIP-35, KIP-511)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.apis import APIS
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext


ApiVersionsResponse = struct("ApiVersionsResponse")


async def _answer(_call: RequestContext, _request: Any) -> Any:
    return supported(ErrorCode.NONE)


def supported(code: int) -> Any:
    """Return the response with the versions that a gateway supports of each API.

    A response with UNSUPPORTED_VERSION must be written in version 0, as KIP-511 demands.
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


API = ApiHandler("ApiVersions", _answer)
