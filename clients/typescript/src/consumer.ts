/** Reads the partitions of a topic by positions that the caller keeps: one long poll for all of them. */
import type { Client } from "./client.js";
import { partsOf, problemError, type PenstockError } from "./errors.js";
import { StoredRecord, type Json } from "./records.js";
import { now, retryDelayMs, sleep } from "./transport.js";

export interface Positions {
  topicId?: string;
  /** The next offset of each partition. */
  offsets: Record<number, number>;
}

export interface ConsumeOptions {
  /** `earliest` by default; a Date begins at the first record of that time. */
  from?: "earliest" | "latest" | Date | Positions;
  /** All partitions by default, also those that are added. */
  partitions?: readonly number[];
  /** Conditions that the node checks; all must hold. */
  filter?: readonly string[];
  maxBytes?: number;
  waitMs?: number;
  /** Where to go on if records were deleted before they were read, or the topic was made again. `fail` by default. */
  outOfRange?: "fail" | "earliest" | "latest";
  signal?: AbortSignal;
}

const LEARN_PARTITIONS_MS = 30_000;

export class Consumer implements AsyncIterable<StoredRecord> {
  #topicId: string | undefined;
  readonly #offsets = new Map<number, number>();
  readonly #ends = new Map<number, number>();
  #learnedAt = -Infinity;
  #failures = 0;

  constructor(
    readonly client: Client,
    readonly topic: string,
    readonly isFollowing: boolean,
    readonly options: ConsumeOptions,
  ) {}

  /** Where to continue after the last record that was handed out. Save it with the result of the work. */
  positions(): Positions {
    return { ...(this.#topicId ? { topicId: this.#topicId } : {}), offsets: Object.fromEntries(this.#offsets) };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StoredRecord, void, void> {
    for (;;) {
      if (this.#offsets.size === 0 || (this.isFollowing && now() - this.#learnedAt > LEARN_PARTITIONS_MS)) await this.#learn();
      const isDone = (partition: number) => !this.isFollowing && this.#offsets.get(partition)! >= this.#ends.get(partition)!;
      const partitions = [...this.#offsets.keys()].filter((partition) => !isDone(partition));
      if (partitions.length === 0) return;
      for (const fetched of await this.#fetch(partitions)) {
        for (const json of fetched.records) {
          const record = new StoredRecord(this.topic, fetched.partition, json);
          this.#offsets.set(fetched.partition, record.nextOffset);
          yield record;
        }
        this.#offsets.set(fetched.partition, fetched.next_offset);
      }
    }
  }

  async #fetch(partitions: number[]): Promise<{ partition: number; next_offset: number; records: Json[] }[]> {
    const { options, topic } = this;
    const identity = this.#topicId ? { topic_id: this.#topicId } : {};
    const call = this.client.call("fetch_many", {
      body: {
        partitions: partitions.map((partition) => ({ topic, partition, offset: this.#offsets.get(partition)!, ...identity })),
        wait_ms: this.isFollowing ? (options.waitMs ?? 20_000) : 0,
        value: "base64",
        ...(options.maxBytes === undefined ? {} : { max_bytes: options.maxBytes }),
        ...(options.filter === undefined ? {} : { filter: [...options.filter] }),
      },
      ...(options.signal ? { signal: options.signal } : {}),
    });
    const answer = await call.catch(partsOf);
    const fetched = [];
    let failure: PenstockError | undefined;
    for (const part of answer.partitions as { partition: number; next_offset: number; records: Json[]; problem?: { status: number } }[]) {
      if (part.problem === undefined) {
        fetched.push(part);
        continue;
      }
      const error = problemError(part.problem.status, part.problem, { url: "http://node" });
      if (!(await this.#reposition(part.partition, error))) failure = error;
    }
    this.#failures = failure ? this.#failures + 1 : 0;
    if (failure && fetched.every((part) => part.records.length === 0)) await sleep(retryDelayMs(failure, this.#failures), options.signal);
    return fetched;
  }

  /** Returns true if the partition has another position now, false to ask again later. Throws what neither can help. */
  async #reposition(partition: number, error: PenstockError): Promise<boolean> {
    if (error.retryable) return false;
    const to = this.options.outOfRange ?? "fail";
    const bound = error.members[to === "earliest" ? "log_start" : "high_watermark"];
    if (to === "fail") throw error;
    if (error.code === "topic_id_mismatch") {
      this.#topicId = undefined;
      this.#offsets.clear();
      await this.#learn("earliest");
      return true;
    }
    if ((error.code !== "offset_below_log_start" && error.code !== "offset_above_high_watermark") || typeof bound !== "number") throw error;
    this.#offsets.set(partition, bound);
    return true;
  }

  async #learn(begin: ConsumeOptions["from"] = this.options.from): Promise<void> {
    const { topic, options } = this;
    const call = options.signal ? { signal: options.signal } : {};
    const saved = typeof begin === "object" && "offsets" in begin ? begin : undefined;
    const isFirst = this.#offsets.size === 0;
    const described = await this.client.call("describe_topic", { path: { topic }, ...call });
    const numbers = options.partitions ?? described.partitions.map((state) => state.partition);
    if (saved && isFirst) this.#topicId = saved.topicId;
    for (const partition of numbers) {
      if (this.#offsets.has(partition)) continue;
      const query = begin instanceof Date ? { timestamp: begin.getTime() } : {};
      const found = await this.client.call("find_offsets", { path: { topic, partition }, query, ...call });
      this.#topicId ??= found.topic_id;
      this.#ends.set(partition, found.high_watermark);
      const start = begin === "latest" && isFirst ? found.high_watermark : begin instanceof Date ? (found.offset ?? found.high_watermark) : found.log_start;
      this.#offsets.set(partition, saved?.offsets[partition] ?? start);
    }
    this.#learnedAt = now();
  }
}

