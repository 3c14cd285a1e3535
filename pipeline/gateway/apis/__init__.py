"""The APIs that the gateway serves, one module each. ApiVersions sends this list to clients."""

from importlib import import_module

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas import apis

# The handlers by Kafka's API key. A module has the name of its API.
APIS: dict[int, ApiHandler] = {
    row.key: import_module(f"{__name__}.{row.name}").API
    for row in apis.APIS.values()
    if row.versions
}
