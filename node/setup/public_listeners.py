"""The public listeners of a node: read from its settings and its listeners file, and checked together at the start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path

from msgspec.structs import asdict, replace

from engine.errors import StartRefused
from gateway.access.listeners.listeners_file import (
    DEFAULT,
    Admission,
    Credential,
    InvalidListeners,
    ListenersFile,
    ListenerSpec,
    check_listener,
    parse_listeners,
)
from gateway.access.listeners.tls_context import Generation, read_tls
from gateway.links.addresses import check_apart, check_host, reserve_port
from gateway.links.kafka_addresses import parse_endpoint
from gateway.settings import NodeSettings

_HINT = "see docs/listeners.md"


def default_listener(settings: NodeSettings, admission: Admission | None = None) -> ListenerSpec:
    """Returns the listener of the options."""
    return ListenerSpec(
        name=DEFAULT,
        host=settings.host,
        port=settings.port,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        tls_min=settings.tls_min,
        **(asdict(admission) if admission is not None else {}),
    )


def read_listeners(settings: NodeSettings, now_ms: int) -> tuple[ListenerSpec, ...]:
    """Returns all listeners, that of the options first. Reads and checks every file of theirs. Blocks.

    Raises StartRefused.
    """
    file = _read_file(settings) if settings.listeners_file else ListenersFile()
    specs = []
    for spec in (default_listener(settings, file.default), *file.listeners):
        specs.append(replace(spec, host=check_host(spec.host)))
        try:
            check_listener(specs[-1])
        except InvalidListeners as error:
            raise StartRefused(f"{settings.listeners_file}: {error}", hint=_HINT) from None
        check_plain(specs[-1], is_insecure=settings.insecure)
        read_generation(specs[-1], now_ms)
    listens = [(f"the listener {spec.name!r}", spec.host, spec.port) for spec in specs]
    for setting in ("kafka_listen", "rest_proxy_listen"):
        if address := getattr(settings, setting):
            _check_tokens_alone(setting, specs[0])
            listens.append((setting, *parse_endpoint(address, setting)))
    check_apart(listens)
    return tuple(specs)


def _check_tokens_alone(setting: str, default: ListenerSpec) -> None:
    """Checks that a port that takes tokens alone opens no way around the default listener.

    Raises StartRefused.
    """
    if Credential.TOKEN not in default.credentials or default.client_ca:
        hint = f"give [default] the credential token and no client_ca, or leave out --{setting.replace('_', '-')}"
        raise StartRefused(
            f"{setting} takes tokens without certificates, and the listener 'default' does not", hint=hint
        )


def check_plain(spec: ListenerSpec, *, is_insecure: bool) -> None:
    """Checks that no credential crosses a network in plain. Raises StartRefused."""
    if not (spec.is_tls or is_insecure or is_loopback(spec.host)):
        text = f"{spec.host} is not a loopback address, and credentials would be sent to it without TLS"
        given = "--tls-cert and --tls-key" if spec.name == DEFAULT else "tls_cert and tls_key"
        hint = f"give {given}, or bind 127.0.0.1, or --insecure if the network is trusted"
        raise StartRefused(f"the listener {spec.name!r}: {text}", hint=hint)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name may resolve to any address
        return host == "localhost"


def read_generation(spec: ListenerSpec, now_ms: int) -> Generation | None:
    """Reads the TLS files of a listener as they are now; None: it has none. Blocks. Raises StartRefused."""
    if not spec.is_tls:
        return None
    try:
        return read_tls(spec.files, spec.tls_min, requires_certificate=spec.requires_certificate, now_ms=now_ms)
    except StartRefused as error:
        raise StartRefused(f"the listener {spec.name!r}: {error.detail}", hint=error.hint) from None


@contextmanager
def reserved(further: Sequence[ListenerSpec]) -> Iterator[list[ListenerSpec]]:
    """Yields the listeners with the ports that they have, which stay reserved. Blocks. Raises StartRefused."""
    with ExitStack() as stack:
        yield [
            replace(spec, port=stack.enter_context(reserve_port(spec.host, spec.port, f"the listener {spec.name!r}")))
            for spec in further
        ]


def _read_file(settings: NodeSettings) -> ListenersFile:
    path = settings.listeners_file
    if not settings.tokens_file:
        hint = "give --tokens-file too: with it a node authenticates, and its superusers are from it"
        raise StartRefused("a listeners file is given without a tokens file", hint=hint)
    try:
        return parse_listeners(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise StartRefused(f"the listeners file {path} cannot be read: {reason}", hint=_HINT) from None
    except InvalidListeners as error:
        raise StartRefused(f"the listeners file {path}: {error}", hint=_HINT) from None
