"""Settings of topics of v3, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from engine.errors import InvalidConfig
from engine.shard.served_topics import Topic
from engine.topic_settings import check_applicable, topic_settings
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.kafka.topic_configs import CONFIGS, DEFAULTED, STATIC, Config, parse_configs, source_of
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.v3 import ConfigEntry, Document, Paths, check_cluster, json_response, paths_of
from gateway.routing.partitions import check_not_internal

_SOURCES = {STATIC: "STATIC_BROKER_CONFIG", DEFAULTED: "DEFAULT_CONFIG"}
_DYNAMIC = "DYNAMIC_TOPIC_CONFIG"


class _ConfigValue(Struct):
    value: str | None = None


class _AlterEntry(ConfigEntry):
    operation: Literal["SET", "DELETE"] = "SET"


class _AlterConfigs(Struct):
    data: list[_AlterEntry]
    validate_only: bool = False


def rest_list_configs(request: Request, context: RestProxyContext) -> Response:
    """GET …/topics/{topic}/configs. Raises Problem, UnknownTopic."""
    paths, topic = paths_of(request, context), context.topics.topic(request.names["topic"])
    rows = [_config(paths, topic, config) for _, config in sorted(CONFIGS.items())]
    return paths.collection("KafkaTopicConfigList", rows, "topics", topic.record.name, "configs")


def rest_describe_config(request: Request, context: RestProxyContext) -> Response:
    """GET …/topics/{topic}/configs/{name}. Raises Problem, UnknownTopic."""
    paths, topic = paths_of(request, context), context.topics.topic(request.names["topic"])
    return json_response(_config(paths, topic, _named_config(request)))


async def rest_set_config(request: Request, context: RestProxyContext) -> Response:
    """PUT …/topics/{topic}/configs/{name}. Raises Problem, EngineError."""
    config = _named_config(request)
    return await _alter(request, context, {config.name: (await read_json(request, _ConfigValue)).value})


async def rest_reset_config(request: Request, context: RestProxyContext) -> Response:
    """DELETE …/topics/{topic}/configs/{name}. Raises Problem, EngineError."""
    return await _alter(request, context, {_named_config(request).name: None})


async def rest_alter_configs(request: Request, context: RestProxyContext) -> Response:
    """POST …/topics/{topic}/configs:alter. Raises Problem, EngineError."""
    body = await read_json(request, _AlterConfigs)
    given = {one.name: None if one.operation == "DELETE" else one.value for one in body.data}
    return await _alter(request, context, given, is_dry=body.validate_only)


async def _alter(
    request: Request, context: RestProxyContext, given: Mapping[str, str | None], *, is_dry: bool = False
) -> Response:
    check_cluster(request, context)
    context.lifecycle.check_accepting()
    name = request.names["topic"]
    check_not_internal(name)
    before = dict(context.topics.topic(name).record.overrides)
    overrides = parse_configs(given)
    for one in given:
        if CONFIGS[one].is_read_only:
            raise InvalidConfig(f"{one} cannot be changed", setting=one)
    settings = topic_settings(before | overrides)
    check_applicable(overrides, settings)
    if not is_dry:
        await request.intend(before={"config": before}, after={"config": before | overrides})
        await context.topics.alter(name, overrides, None)
    return Response(status=204)


def _named_config(request: Request) -> Config:
    """Returns the setting in the path. Raises Problem not_found."""
    config = CONFIGS.get(request.names["name"])
    if config is None:
        raise Problem("not_found", f"Config {request.names['name'][:100]} cannot be found.")
    return config


def _config(paths: Paths, topic: Topic, config: Config) -> Document:
    name, source = topic.record.name, source_of(config, topic.settings)
    names = (("topic", name), ("config", config.name))
    return paths.resource("KafkaTopicConfig", names, "topics", name, "configs", config.name) | {
        "topic_name": name,
        "name": config.name,
        "value": config.shown(topic.settings),
        "is_default": source == DEFAULTED,
        "is_read_only": config.is_read_only,
        "is_sensitive": False,
        "source": _SOURCES.get(source, _DYNAMIC),
        "synonyms": [],
    }
