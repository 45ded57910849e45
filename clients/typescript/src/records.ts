/** Records: as the node returns them, as a producer sends them, and the partition of a key. */

import type { TraceContext } from "./transport.js";

export interface Json {
  offset?: unknown;
  last_offset?: unknown;
  timestamp?: unknown;
  key?: unknown;
  key_base64?: unknown;
  value?: unknown;
  value_base64?: unknown;
  headers?: unknown;
  error?: unknown;
  delivery_count?: unknown;
}

export type HeaderValue = string | Uint8Array | null;

export interface OutgoingRecord {
  /** Bytes are stored as they are, everything else as its JSON. null is a tombstone. */
  value: unknown;
  key?: string | Uint8Array;
  headers?: Record<string, HeaderValue | readonly HeaderValue[]>;
  timestamp?: number | Date;
  partition?: number;
}

/** A stored record. Its value is decoded when it is asked for. */
export class StoredRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly timestamp: number;
  /** How often a share group has delivered it; 0 elsewhere. */
  readonly deliveryCount: number;
  /** `undecodable` for stored bytes that are no records; then there is no value. */
  readonly error: string | undefined;
  /** Where to continue after it. */
  readonly nextOffset: number;
  readonly #json: Json;

  constructor(topic: string, partition: number, json: Json) {
    this.#json = json;
    this.topic = topic;
    this.partition = partition;
    this.offset = integer(json.offset);
    this.timestamp = json.timestamp === undefined ? 0 : integer(json.timestamp);
    this.deliveryCount = json.delivery_count === undefined ? 0 : integer(json.delivery_count);
    this.error = typeof json.error === "string" ? json.error : undefined;
    this.nextOffset = (json.last_offset === undefined ? this.offset : integer(json.last_offset)) + 1;
  }

  /** The key as text; null without one. Bytes that are not UTF-8 are replaced: `keyBytes` has them. */
  get key(): string | null {
    const bytes = this.keyBytes;
    return bytes && new TextDecoder().decode(bytes);
  }

  get keyBytes(): Uint8Array | null {
    if (typeof this.#json.key_base64 === "string") return fromBase64(this.#json.key_base64);
    return typeof this.#json.key === "string" ? new TextEncoder().encode(this.#json.key) : null;
  }

  /** The stored bytes; null for a tombstone. */
  bytes(): Uint8Array | null {
    if (this.error !== undefined) throw new RangeError(`${this.topic}/${this.partition} at ${this.offset} is ${this.error}`);
    if (typeof this.#json.value_base64 === "string") return fromBase64(this.#json.value_base64);
    if (this.#json.value !== undefined && this.#json.value !== null) throw new RangeError("the URL was signed without value=base64");
    return null;
  }

  text(): string | null {
    const bytes = this.bytes();
    return bytes && new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  }

  /** The value, parsed. Throws SyntaxError if it is not JSON. */
  json<T = unknown>(): T | null {
    const text = this.text();
    return text === null ? null : (JSON.parse(text) as T);
  }

  /** The values of a header, as often as it was given. */
  header(name: string): (Uint8Array | null)[] {
    const headers = this.#json.headers as Record<string, unknown> | undefined;
    if (!headers || !Object.hasOwn(headers, name)) return [];
    const given = headers[name];
    return (Array.isArray(given) ? given : [given]).map((value) => {
      if (value === null) return null;
      return typeof value === "string" ? new TextEncoder().encode(value) : fromBase64((value as { base64: string }).base64);
    });
  }

  /** The context of the trace that the record is of, as propagators of OpenTelemetry take it; empty without one. */
  get traceContext(): TraceContext {
    const text = (name: string) => this.header(name)[0] && new TextDecoder().decode(this.header(name)[0]!);
    const prefix = text("ce_traceparent") ? "ce_" : ""; // a CloudEvent has it in its extension attributes
    const [traceparent, tracestate] = [text(`${prefix}traceparent`), text(`${prefix}tracestate`)];
    return traceparent ? { traceparent, ...(tracestate ? { tracestate } : {}) } : {};
  }

  get headerNames(): string[] {
    return Object.keys(this.#json.headers ?? {});
  }
}

/** Adds the context of a sampled trace to a record that has none. */
export function traced(record: OutgoingRecord, context: TraceContext | undefined): OutgoingRecord {
  const { traceparent, tracestate } = context ?? {};
  const isSampled = traceparent !== undefined && /-[0-9a-f][13579bdf]$/.test(traceparent);
  if (!isSampled || Object.keys(record.headers ?? {}).some((name) => /^(ce_)?traceparent$/i.test(name))) return record;
  return { ...record, headers: { ...record.headers, traceparent, ...(tracestate ? { tracestate } : {}) } };
}

/** A line of NDJSON with its end: a record's bare value, or a record. */
export interface Line {
  text: string;
  isPlain: boolean;
}

/** Throws TypeError if the record has no JSON. */
export function lineOf(record: OutgoingRecord): Line {
  const { value, key, headers, timestamp } = record;
  if (value instanceof Uint8Array) return recordLine(`{"value_base64":"${toBase64(value)}"`, record);
  const json = JSON.stringify(value);
  if (json === undefined) throw new TypeError(`a value of type ${typeof value} has no JSON`);
  if (key === undefined && headers === undefined && timestamp === undefined) {
    return value === null ? { text: asRecordLine(json), isPlain: false } : { text: json + "\n", isPlain: true };
  }
  const isText = headers !== undefined && typeof value === "string"; // a content type may make the node unquote it
  return recordLine(isText ? `{"value_base64":"${toBase64(new TextEncoder().encode(json))}"` : `{"value":${json}`, record);
}

/** Returns a plain line, without its end, as a record. */
export function asRecordLine(value: string): string {
  return `{"value":${value}}\n`;
}

function recordLine(begun: string, { key, headers, timestamp }: OutgoingRecord): Line {
  let text = begun;
  if (key !== undefined) text += typeof key === "string" ? `,"key":${JSON.stringify(key)}` : `,"key_base64":"${toBase64(key)}"`;
  if (timestamp !== undefined) text += `,"timestamp":${integer(Math.round(Number(timestamp)))}`;
  if (headers !== undefined) text += `,"headers":${JSON.stringify(headers, headerJson)}`;
  return { text: text + "}\n", isPlain: false };
}

function headerJson(_: string, value: unknown): unknown {
  return value instanceof Uint8Array ? { base64: toBase64(value) } : value;
}

export function keyBytes(key: string | Uint8Array): Uint8Array {
  return typeof key === "string" ? new TextEncoder().encode(key) : key;
}

/** The partition that Kafka's clients and the node choose for a key: murmur2. */
export function partitionOf(key: Uint8Array, partitions: number): number {
  const m = 0x5bd1e995;
  let h = 0x9747b28c ^ key.length;
  let at = 0;
  for (; at + 4 <= key.length; at += 4) {
    let k = key[at]! | (key[at + 1]! << 8) | (key[at + 2]! << 16) | (key[at + 3]! << 24);
    k = Math.imul(k, m);
    k = Math.imul(k ^ (k >>> 24), m);
    h = Math.imul(h, m) ^ k;
  }
  const left = key.length - at;
  if (left >= 3) h ^= key[at + 2]! << 16;
  if (left >= 2) h ^= key[at + 1]! << 8;
  if (left >= 1) h = Math.imul(h ^ key[at]!, m);
  h = Math.imul(h ^ (h >>> 13), m);
  return ((h ^ (h >>> 15)) & 0x7fffffff) % partitions;
}

/** Throws RangeError for what is no integer that a number can hold: 2^53 and above would be rounded. */
export function integer(value: unknown): number {
  if (!Number.isSafeInteger(value)) throw new RangeError(`${String(value)} is not an integer below 2^53`);
  return value as number;
}

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}
