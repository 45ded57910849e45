/** The client: typed calls of every operation, and what is built on them. */
import { Consumer, type ConsumeOptions } from "./consumer.js";
import type { Operations } from "./contract.js";
import { GroupConsumer, type GroupOptions } from "./group.js";
import { Producer, type ProducerOptions } from "./producer.js";
import { ShareConsumer, type ShareOptions } from "./queue.js";
import { asRecordLine, lineOf, StoredRecord, toBase64, traced, keyBytes, type Json, type OutgoingRecord } from "./records.js";
import { OPERATIONS } from "./tables.js";
import { isPenstockError, problemError } from "./errors.js";
import { randomId, Transport, type Answer, type CallOptions, type ClientOptions } from "./transport.js";

type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

export type Arguments<Name extends keyof Operations> = CallOptions & {
  query?: Query;
} & ({} extends Operations[Name]["path"] ? { path?: Operations[Name]["path"] } : { path: Operations[Name]["path"] }) &
  (undefined extends Operations[Name]["body"] ? { body?: Operations[Name]["body"] } : { body: Operations[Name]["body"] });

export interface Appended {
  partition: number;
  baseOffset: number | null;
  count: number;
  isDuplicate: boolean;
}

export interface TableOptions {
  /** The read includes what the log has below these positions. */
  asOf?: string;
  /** Only what has changed since these positions. */
  since?: string;
  waitMs?: number;
  signal?: AbortSignal;
}

export class Client {
  readonly transport: Transport;

  constructor(options: ClientOptions | string) {
    this.transport = new Transport(typeof options === "string" ? { url: options } : options);
  }

  /** Calls an operation of the contract by its name. Repeats it where the contract says that this is harmless. */
  async call<Name extends keyof Operations>(name: Name, given: Arguments<Name>): Promise<Operations[Name]["answer"]> {
    return (await this.exchange(name, given)).json as Operations[Name]["answer"];
  }

  /** As `call`, with status and headers. */
  async exchange<Name extends keyof Operations>(name: Name, given: Arguments<Name>): Promise<Answer> {
    const [method, template, isRepeatable] = OPERATIONS[name];
    const parts = (given.path ?? {}) as Record<string, string | number>;
    const path = template.replace(/\{(\w+)\}/g, (_, part: string) => {
      if (parts[part] === undefined) throw new TypeError(`${name} needs the path parameter ${part}`);
      return encodeURIComponent(parts[part]);
    });
    const waits = [(given.body as { wait_ms?: number } | undefined)?.wait_ms, given.query?.["wait_ms"]];
    const headers: Record<string, string> = { ...given.headers };
    if (given.body !== undefined) headers["Content-Type"] ??= "application/json";
    if (given.idempotencyKey !== undefined) headers["Idempotency-Key"] = given.idempotencyKey;
    const message = {
      method,
      path: path + queryOf(given.query),
      headers,
      isRepeatable: isRepeatable || given.idempotencyKey !== undefined,
      waitMs: Number(waits.find((wait) => wait !== undefined) ?? 0),
      ...(given.body === undefined ? {} : { body: JSON.stringify(given.body) }),
    };
    return this.transport.send(message, given);
  }

  /** Stores records in one request, once: repeats carry an Idempotency-Key, by default a random one. */
  async append(topic: string, records: readonly OutgoingRecord[], options: CallOptions = {}): Promise<Appended[]> {
    const body = records.map((record) => placedLine(traced(record, this.transport.traceContext?.()))).join("");
    const message = {
      method: "POST",
      path: `/v1/topics/${encodeURIComponent(topic)}/records?ndjson=records`,
      headers: {
        ...options.headers,
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": options.idempotencyKey ?? randomId(),
      },
      isRepeatable: true,
      body,
    };
    const until = performance.now() + (options.deadlineMs ?? this.transport.deadlineMs);
    for (;;) {
      const left = { ...options, deadlineMs: Math.max(1, until - performance.now()) };
      const { json } = await this.transport.send(message, left);
      const results = (json as Operations["produce"]["answer"]).results;
      const failed = results.find((result) => result.problem !== undefined)?.problem;
      if (failed === undefined) {
        return results.map((result) => ({
          partition: result.partition,
          baseOffset: result.base_offset,
          count: result.count,
          isDuplicate: result.duplicate === true,
        }));
      }
      const error = problemError(failed.status, failed, { url: "http://node" });
      if (!error.retryable || performance.now() >= until) throw error.asMaybeDone(); // other partitions are stored
      await new Promise((resolve) => setTimeout(resolve, 50 + Math.random() * 200));
    }
  }

  producer(options: ProducerOptions = {}): Producer {
    return new Producer(this.transport, async (topic) => (await this.call("describe_topic", { path: { topic } })).partitions.length, options);
  }

  /** Reads what the partitions of a topic have now, and ends. */
  consume(topic: string, options: ConsumeOptions = {}): Consumer {
    return new Consumer(this, topic, false, options);
  }

  /** Reads a topic and waits for more, until the loop ends or `signal` aborts. */
  follow(topic: string, options: ConsumeOptions = {}): Consumer {
    return new Consumer(this, topic, true, options);
  }

  /** Returns a URL with the caller's right to the records or the table of one topic, for a program that has no token. */
  async signUrl(path: string, options: { method?: "GET" | "POST"; lifeMs?: number; maxBytes?: number } = {}): Promise<string> {
    const limits = { ...(options.lifeMs === undefined ? {} : { life_ms: options.lifeMs }), ...(options.maxBytes === undefined ? {} : { max_bytes: options.maxBytes }) };
    const signed = await this.call("sign_url", { body: { url: path, method: options.method ?? "GET", ...limits } });
    return this.transport.urlOf(signed.url);
  }

  /** A member of a consumer group, which shares the partitions of topics. */
  group(group: string, topics: readonly string[], options: GroupOptions = {}): GroupConsumer {
    return new GroupConsumer(this, group, topics, options);
  }

  /** A caller of a share group: a work queue with an outcome for each record. */
  queue(group: string, topics: readonly string[], options: ShareOptions = {}): ShareConsumer {
    return new ShareConsumer(this, group, topics, options);
  }

  /** Returns the last record of a key of a compacted topic; null if there is none. */
  async lookUp(topic: string, key: string | Uint8Array, options: { atLeast?: number; waitMs?: number; signal?: AbortSignal } = {}): Promise<StoredRecord | null> {
    const name = toBase64(keyBytes(key)).replace(/=+$/, "").replaceAll("+", "-").replaceAll("/", "_");
    const query = { key: "base64url", value: "base64", at_least: options.atLeast, wait_ms: options.waitMs };
    try {
      const row = await this.call("read_table_key", { path: { topic, key: name }, query, ...(options.signal ? { signal: options.signal } : {}) });
      const { partition } = row as { partition: number };
      return new StoredRecord(topic, partition, row as Json);
    } catch (error) {
      if (isPenstockError(error) && error.code === "unknown_key") return null;
      throw error;
    }
  }

  /** Yields the rows of a compacted topic, page by page; the last row of a key counts. Returns the positions of the table. */
  async *table(topic: string, options: TableOptions = {}): AsyncGenerator<StoredRecord, string, void> {
    let positions = options.since;
    for (;;) {
      const query = { value: "base64", positions, as_of: options.asOf, wait_ms: options.waitMs };
      const page = await this.call("read_table", { path: { topic }, query, ...(options.signal ? { signal: options.signal } : {}) });
      for (const row of page.rows) yield new StoredRecord(topic, row.partition, row as Json);
      positions = page.positions;
      if (page.complete) return positions;
    }
  }
}

function placedLine(record: OutgoingRecord): string {
  const { text, isPlain } = lineOf(record);
  const line = isPlain ? asRecordLine(text.slice(0, -1)) : text;
  return record.partition === undefined ? line : `{"partition":${record.partition},${line.slice(1)}`;
}

function queryOf(query: Query = {}): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const part of Array.isArray(value) ? value : [value]) if (part !== undefined) pairs.append(name, String(part));
  }
  return pairs.size > 0 ? `?${pairs}` : "";
}

