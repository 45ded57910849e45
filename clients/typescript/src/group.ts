/** A member of a consumer group. A poll commits the delivery before it, once all of its records are finished. */
import type { Client } from "./client.js";
import type { Operations } from "./contract.js";
import { isPenstockError, problemError } from "./errors.js";
import { StoredRecord, type Json } from "./records.js";
import { randomId, retryDelayMs, sleep } from "./transport.js";

export interface GroupOptions {
  /** The member's name, which no other client has. A restart with the same name keeps its partitions. */
  memberId?: string;
  filter?: readonly string[];
  maxRecords?: number;
  maxBytes?: number;
  waitMs?: number;
  /** How long heartbeats keep the partitions while the loop works on one delivery. 5 minutes by default. */
  workMs?: number;
  /** Called when the membership was lost: what was not committed is delivered again, perhaps to another member. */
  onLost?: () => void;
  signal?: AbortSignal;
}

interface Slot {
  topic: string;
  partition: number;
}

// The membership has ended: the next poll joins.
const ENDED = new Set(["stale_token", "invalid_token", "unknown_member", "member_fenced", "unknown_group"]);
// A topic was deleted: the coordinator takes its partitions away.
const DELETED = new Set(["unknown_topic", "topic_id_mismatch"]);
const FIRST_HEARTBEAT_MS = 400;

export class GroupConsumer implements AsyncIterable<StoredRecord> {
  readonly memberId: string;
  #token: string | null = null;
  #epoch = 0;
  #failed: (Slot & { offset: number; error: string })[] = [];
  /** Finished records of the present delivery. */
  #finished = new Map<string, Slot & { offset: number }>();
  #ends: (Slot & { offset: number })[] = [];
  #failures = 0;
  #heartbeatMs = FIRST_HEARTBEAT_MS;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  constructor(
    readonly client: Client,
    readonly group: string,
    readonly topics: readonly string[],
    readonly options: GroupOptions = {},
  ) {
    this.memberId = options.memberId ?? `js-${randomId()}`;
  }

  /** Yields records. A record is finished when the next one is asked for; leaving the loop leaves the group. */
  async *[Symbol.asyncIterator](): AsyncGenerator<StoredRecord, void, void> {
    try {
      for (;;) {
        const records = await this.poll();
        const epoch = this.#epoch;
        for (const record of records) {
          if (this.#failed.some((failed) => failed.topic === record.topic && failed.partition === record.partition)) continue;
          if (this.#epoch !== epoch) break; // lost while the loop worked
          yield record;
          this.#finish(record);
        }
      }
    } finally {
      await this.close();
    }
  }

  /** Commits the last delivery, as far as no record of it failed, and returns the next; empty if nothing came in time. */
  async poll(): Promise<StoredRecord[]> {
    const until = performance.now() + this.client.transport.deadlineMs;
    for (;;) {
      this.#stopHeartbeat();
      const { options } = this;
      try {
        const delivery = await this.client.call("group_poll", {
          path: { group: this.group, member: this.memberId },
          body: {
            topics: [...this.topics],
            token: this.#token,
            wait_ms: options.waitMs ?? 20_000,
            value: "base64",
            ...(this.#failed.length > 0 && this.#token ? { failed: this.#failed } : {}),
            ...(options.maxRecords === undefined ? {} : { max_records: options.maxRecords }),
            ...(options.maxBytes === undefined ? {} : { max_bytes: options.maxBytes }),
            ...(options.filter === undefined ? {} : { filter: [...options.filter] }),
          },
          ...(options.signal ? { signal: options.signal } : {}),
        });
        return await this.#take(delivery);
      } catch (error) {
        if (!isPenstockError(error) || this.#isClosed) throw error;
        const isOfTopics = DELETED.has(error.code) && this.#epoch !== 0 && performance.now() < until; // they may come back
        if (!ENDED.has(error.code) && !isOfTopics) throw error;
        await sleep(retryDelayMs(error, ++this.#failures), options.signal);
        if (!isOfTopics) this.#lose();
      }
    }
  }

  /** Reports the first record of its partition that could not be processed: the partition is delivered again from it on. */
  fail(record: StoredRecord, error: unknown): void {
    const failed = this.#failed.some((other) => other.topic === record.topic && other.partition === record.partition);
    const reason = (error instanceof Error ? error.message : String(error)).slice(0, 1000);
    if (!failed) this.#failed.push({ topic: record.topic, partition: record.partition, offset: record.offset, error: reason });
  }

  /** Commits the finished records and leaves the group: the others get its partitions at once. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stopHeartbeat();
    if (this.#epoch === 0) return;
    await this.#commit([...this.#finished.values()]);
    await this.client.call("leave_group", { path: { group: this.group, member: this.memberId }, deadlineMs: 5000 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Commits all records of the present delivery. Returns false if another member has some of the partitions by now. */
  async commit(): Promise<boolean> {
    return this.#commit(this.#ends);
  }

  async #commit(positions: readonly (Slot & { offset: number })[]): Promise<boolean> {
    if (positions.length === 0) return true;
    if (this.#epoch === 0) return false;
    const offsets = positions.map(({ topic, partition, offset }) => {
      const failed = this.#failed.find((other) => other.topic === topic && other.partition === partition);
      return { topic, partition, offset: Math.min(offset, failed?.offset ?? Infinity) };
    });
    try {
      const body = { member_id: this.memberId, member_epoch: this.#epoch, offsets };
      await this.client.call("commit_group_offsets", { path: { group: this.group }, body, deadlineMs: 15_000 });
      return true;
    } catch (error) {
      if (!isPenstockError(error) || !(ENDED.has(error.code) || error.code === "unknown_topic")) throw error;
      if (positions.length === 1) return false;
      for (const position of positions) await this.#commit([position]); // a commit stores all of its positions or none
      return false;
    }
  }

  async #take(delivery: Operations["group_poll"]["answer"]): Promise<StoredRecord[]> {
    [this.#token, this.#epoch, this.#failed] = [delivery.token, delivery.member_epoch, []];
    this.#finished = new Map();
    this.#ends = [];
    const records: StoredRecord[] = [];
    for (const part of delivery.partitions as (Slot & { next_offset: number; records?: Json[]; problem?: { status: number } })[]) {
      if (part.problem !== undefined) {
        const error = problemError(part.problem.status, part.problem, { url: "http://node" });
        if (!error.retryable && !DELETED.has(error.code)) throw error;
        if (records.length === 0) await sleep(retryDelayMs(error, ++this.#failures), this.options.signal);
        continue;
      }
      for (const json of part.records ?? []) records.push(new StoredRecord(part.topic, part.partition, json));
      this.#ends.push({ topic: part.topic, partition: part.partition, offset: part.next_offset });
    }
    if (records.length > 0) {
      this.#failures = 0;
      this.#startHeartbeat(performance.now() + (this.options.workMs ?? 300_000));
    }
    return records;
  }

  #finish(record: StoredRecord): void {
    const slot = { topic: record.topic, partition: record.partition };
    this.#finished.set(`${slot.partition}/${slot.topic}`, { ...slot, offset: record.nextOffset });
  }

  #lose(): void {
    const wasMember = this.#epoch !== 0;
    [this.#token, this.#epoch, this.#failed, this.#ends] = [null, 0, [], []];
    this.#finished = new Map();
    if (wasMember) this.options.onLost?.();
  }

  #startHeartbeat(until: number): void {
    this.#timer = setTimeout(() => void this.#beat(until), this.#heartbeatMs);
  }

  async #beat(until: number): Promise<void> {
    const timer = this.#timer;
    try {
      const body = { member_id: this.memberId, member_epoch: this.#epoch };
      const answer = await this.client.call("group_heartbeat", { path: { group: this.group }, body, deadlineMs: 5000 });
      this.#heartbeatMs = answer.heartbeat_ms;
    } catch (error) {
      if (timer !== this.#timer) return;
      if (isPenstockError(error) && ENDED.has(error.code)) return this.#lose();
    }
    if (timer === this.#timer && performance.now() < until) this.#startHeartbeat(until);
  }

  #stopHeartbeat(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
