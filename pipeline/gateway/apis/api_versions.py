"""ApiVersions (API key 18): which APIs there are, in which versions (KIP-35, KIP-511)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from group_coordinator.pipeline.gateway.api import Api
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from group_coordinator.pipeline.gateway.call import Call


async def _answer(call: Call, _request: ApiVersionsRequest) -> ApiVersionsResponse:
    return supported(call.services.versions, 0)


def supported(versions: Mapping[int, range], code: int) -> ApiVersionsResponse:
    """The answer that tells `versions`, the spoken ones by an API's key.

    With UNSUPPORTED_VERSION it is of version 0, whatever was asked.
    """
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=key, min_version=spoken[0], max_version=spoken[-1]
            )
            for key, spoken in sorted(versions.items())
        ],
        finalized_features_epoch=-1,
    )


def unsupported(versions: Mapping[int, range]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that this gateway does not know."""
    return supported(versions, ErrorCode.UNSUPPORTED_VERSION)


API = Api(ApiVersionsRequest, 0, 4, _answer)
