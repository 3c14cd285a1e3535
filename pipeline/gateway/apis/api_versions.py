"""ApiVersions (API key 18): which APIs there are, in which versions (KIP-35, KIP-511)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from pipeline.gateway.api import Api
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.gateway.call import Call


async def _answer(call: Call, _request: ApiVersionsRequest) -> ApiVersionsResponse:
    return versions(call.services.apis.values(), 0)


def versions(apis: Iterable[Api], code: int) -> ApiVersionsResponse:
    """The answer; with UNSUPPORTED_VERSION it is of version 0, whatever was asked."""
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=api.key, min_version=api.lowest, max_version=api.highest
            )
            for api in sorted(apis, key=lambda each: each.key)
        ],
        finalized_features_epoch=-1,
    )


def unsupported(apis: Iterable[Api]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that this gateway does not know."""
    return versions(apis, ErrorCode.UNSUPPORTED_VERSION)


API = Api(ApiVersionsRequest, 0, 4, _answer)
