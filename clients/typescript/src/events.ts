/** Follows a topic as an event stream (Server-Sent Events), and resumes where a connection was lost. Only programs that use it load it. */
import type { Client } from "./client.js";
import { mayRetry, retryDelayMs, sleep } from "./transport.js";
import { isPenstockError, PenstockError, problemError } from "./errors.js";
import { StoredRecord, type Json } from "./records.js";

export interface EventOptions {
  /** `latest` by default. */
  from?: "earliest" | "latest";
  /** The `position` of an earlier stream, to continue after it. */
  position?: string;
  filter?: readonly string[];
  /** `earliest` goes on with a topic that was made again under the name. `fail` by default. */
  outOfRange?: "fail" | "earliest";
  /** A signed URL of the topic's records with `value=base64`, for a client without a token. It has its own query. */
  url?: string;
  signal?: AbortSignal;
}

interface Event {
  id?: string;
  event?: string;
  data?: string;
}

const SILENCE_MS = 45_000; // a node sends a line every 15 s

/** All partitions of a topic over one connection: `for await (const record of new EventStream(client, "rides"))`. */
export class EventStream implements AsyncIterable<StoredRecord> {
  /** Where to continue after the last record that was handed out. Save it with the result of the work. */
  position: string;

  constructor(
    readonly client: Client,
    readonly topic: string,
    readonly options: EventOptions = {},
  ) {
    this.position = options.position ?? "";
  }

  /** Yields records until the loop ends or `signal` aborts. Throws what no retry can help. */
  async *[Symbol.asyncIterator](): AsyncGenerator<StoredRecord, void, void> {
    for (let failures = 0; ; ) {
      try {
        for await (const event of this.#events()) {
          failures = 0;
          const json = event.data && event.event === undefined ? JSON.parse(event.data) : undefined;
          const record = json && new StoredRecord(this.topic, json.partition, json as Json);
          if (event.event === "problem") throw problemOf(event.data!);
          if (event.event === "topic_recreated" && this.options.outOfRange !== "earliest") {
            throw new PenstockError({ code: "topic_id_mismatch", detail: `${this.topic} was deleted and made again` });
          }
          if (event.id !== undefined) this.position = event.id;
          if (record) yield record;
        }
        failures++;
        await sleep(retryDelayMs(new PenstockError({ code: "connection_failed", detail: "" }), failures), this.options.signal);
      } catch (error) {
        if (!isPenstockError(error) || !mayRetry(error, true)) throw error;
        await sleep(retryDelayMs(error, ++failures), this.options.signal);
      }
    }
  }

  async *#events(): AsyncGenerator<Event, void, void> {
    const { options, topic } = this;
    const query = new URLSearchParams({ value: "base64", from: options.from ?? "latest" });
    for (const filter of options.filter ?? []) query.append("filter", filter);
    const silence = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, silence.signal]) : silence.signal;
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const response = await this.client.transport.open(
        {
          method: "GET",
          path: options.url ?? `/v1/topics/${encodeURIComponent(topic)}/records?${query}`,
          headers: { Accept: "text/event-stream", ...(this.position ? { "Last-Event-ID": this.position } : {}) },
          isRepeatable: true,
        },
        signal,
      );
      const decoder = new TextDecoder();
      const reader = response.body!.getReader();
      let text = "";
      try {
        for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
          clearTimeout(timer);
          timer = setTimeout(() => silence.abort(), SILENCE_MS);
          const blocks = (text + decoder.decode(chunk.value, { stream: true })).split("\n\n");
          text = blocks.pop()!;
          for (const block of blocks) yield eventOf(block);
        }
      } finally {
        await reader.cancel().catch(() => {}); // of a loop that has ended; a lost connection cannot be cancelled
      }
    } catch (error) {
      options.signal?.throwIfAborted();
      if (isPenstockError(error)) throw error;
      throw new PenstockError({ code: "connection_failed", detail: String(error), retryable: true }, { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }
}

function eventOf(block: string): Event {
  const fields = block.split("\n").map((line) => /^(\w+): ?(.*)$/.exec(line));
  return Object.fromEntries(fields.filter((field) => field !== null).map(([, name, value]) => [name, value]));
}

function problemOf(data: string): PenstockError {
  const document = JSON.parse(data) as { status: number };
  return problemError(document.status, document, { url: "http://node" });
}
