"""The address of the listener of REST Proxy's dialect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.links.addresses import reserve_port
from gateway.links.kafka_addresses import Endpoint, check_is_safe, parse_endpoint
from gateway.settings import NodeSettings

SETTING = "rest_proxy_listen"


def check_rest_proxy_address(settings: NodeSettings) -> None:
    """Checks that the listener is as safe as that of HTTP. Raises StartRefused."""
    check_is_safe(settings, SETTING, parse_endpoint(settings.rest_proxy_listen, SETTING))


@contextmanager
def with_rest_proxy_port(settings: NodeSettings) -> Iterator[NodeSettings]:
    """Yields settings with the port of the listener, in place of 0. Blocks.

    The port is reserved until the context ends. Raises StartRefused.
    """
    if not settings.rest_proxy_listen:
        yield settings
        return
    listens = parse_endpoint(settings.rest_proxy_listen, SETTING)
    with reserve_port(listens.host, listens.port, "--rest-proxy-listen") as port:
        yield dataclasses.replace(settings, rest_proxy_listen=Endpoint(listens.host, port).text)
