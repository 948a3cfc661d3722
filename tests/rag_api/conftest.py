"""Makes the fixtures of `api_server` known to the tests of this folder."""

from tests.rag_api.api_server import (
    alice,
    local,
    plain_settings,
    server,
    settings,
    tiny_backbone,
)

__all__ = ["alice", "local", "plain_settings", "server", "settings", "tiny_backbone"]
