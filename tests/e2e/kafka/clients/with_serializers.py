"""Confluent's serializers of Avro, Protobuf and JSON Schema: each registers its schema and sends three values.

Its arguments are bootstrap servers and the URL of a registry. Each topic then gets a value cut in half: it prints the
error of that one. It reads the topic by the deserializer, and prints what came.
"""

import json
import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELDS = ("id", "long"), ("city", "string")
AVRO = json.dumps({"type": "record", "name": "Ride", "fields": [{"name": name, "type": kind} for name, kind in FIELDS]})
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Ride",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "city": {"type": "string"}},
        "required": ["id", "city"],
    }
)
SENT = [{"id": number, "city": "Lima"} for number in range(3)]


def message_class():
    """Returns the class of `message shop.Ride { int64 id = 1; string city = 2; }`, which else protoc makes."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="ride.proto", package="shop", syntax="proto3")
    ride = file.message_type.add(name="Ride")
    ride.field.add(name="id", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    ride.field.add(name="city", number=2, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Ride"))


def main() -> None:
    servers, url = sys.argv[1:]
    registry, ride = SchemaRegistryClient({"url": url}), message_class()
    plain = {"use.deprecated.format": False}
    forms = {
        "avro": (AvroSerializer(registry, AVRO), AvroDeserializer(registry), dict),
        "json": (JSONSerializer(JSON_SCHEMA, registry), JSONDeserializer(JSON_SCHEMA), dict),
        "protobuf": (
            ProtobufSerializer(ride, registry, plain),
            ProtobufDeserializer(ride, plain),
            lambda values: ride(**values),
        ),
    }
    producer = Producer({"bootstrap.servers": servers})
    for topic, (serialize, deserialize, made) in forms.items():
        context, errors = SerializationContext(topic, MessageField.VALUE), []

        def note(error, _, errors=errors):
            errors.append("" if error is None else error.name())

        values = [serialize(made(one), context) for one in SENT]
        for value in (*values, values[-1][:-2]):
            producer.produce(topic, value, partition=0, on_delivery=note)
            producer.flush()
        consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        came = []
        while len(came) < len(SENT):
            record = consumer.poll(30)
            assert record, "no record came"
            assert record.error() is None, record.error()
            value = deserialize(record.value(), context)
            came.append(value if isinstance(value, dict) else {"id": value.id, "city": value.city})
        consumer.close()
        print(json.dumps({"topic": topic, "errors": errors, "came": came}), flush=True)


if __name__ == "__main__":
    main()
