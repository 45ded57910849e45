"""The addresses of the listener of Kafka's protocol: where it listens, and where its clients connect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import NamedTuple

from engine.errors import StartRefused
from gateway.links.addresses import WILDCARDS, check_host, reserve_port
from gateway.settings import NodeSettings


class Endpoint(NamedTuple):
    """A host, an IPv6 address without brackets, and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str, setting: str) -> Endpoint:
    """Returns the host and the port of a setting. Raises StartRefused."""
    host, _, port = text.rpartition(":")
    hint = "give HOST:PORT, an IPv6 address in brackets: 127.0.0.1:9092, [::1]:9092"
    if not host or not port.isdecimal() or int(port) > 65_535 or (":" in host and not host.startswith("[")):
        raise StartRefused(f"{setting} {text!r} is not an address", hint=hint)
    return Endpoint(check_host(host), int(port))


def check_is_safe(settings: NodeSettings, setting: str, listens: Endpoint) -> None:
    """Checks that an address takes requests of this machine alone, or with tokens over TLS. Raises StartRefused."""
    if not (_is_loopback(listens.host) or settings.insecure or (settings.tokens_file and settings.is_tls)):
        why = "tokens would be sent to it without TLS" if settings.tokens_file else "authentication is disabled"
        missing = "--tls-cert and --tls-key" if settings.tokens_file else "--tokens-file and TLS"
        raise StartRefused(
            f"{setting} {getattr(settings, setting)} is not a loopback address, and {why}",
            hint=f"bind 127.0.0.1, or give {missing}, or --insecure if the network is trusted",
        )


def check_kafka_addresses(settings: NodeSettings) -> None:
    """Checks that the listener is as safe as that of HTTP, and that clients can connect to it. Raises StartRefused."""
    listens = parse_endpoint(settings.kafka_listen, "kafka_listen")
    check_is_safe(settings, "kafka_listen", listens)
    advertised = listens
    if settings.kafka_advertised:
        advertised = parse_endpoint(settings.kafka_advertised, "kafka_advertised")
        if not advertised.port:
            raise StartRefused("kafka_advertised has port 0", hint="give the port that clients connect to")
    if advertised.host in WILDCARDS:
        raise StartRefused(
            f"clients of Kafka's protocol cannot connect to {advertised.host}",
            hint="give --kafka-advertised the HOST:PORT by which clients reach this node",
        )


@contextmanager
def with_kafka_port(settings: NodeSettings) -> Iterator[NodeSettings]:
    """Yields settings with the port of the listener, in place of 0, and with what is advertised. Blocks.

    The port is reserved until the context ends. Raises StartRefused.
    """
    if not settings.kafka_listen:
        yield settings
        return
    listens = parse_endpoint(settings.kafka_listen, "kafka_listen")
    with reserve_port(listens.host, listens.port, "--kafka-listen") as port:
        text = Endpoint(listens.host, port).text
        yield dataclasses.replace(settings, kafka_listen=text, kafka_advertised=settings.kafka_advertised or text)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name may resolve to any address
        return host == "localhost"
