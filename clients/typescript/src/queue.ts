/** A caller of a share group: it acquires single records, and gives an outcome for each. */
import type { Client } from "./client.js";
import type { Operations } from "./contract.js";
import { StoredRecord, type Json } from "./records.js";

export interface ShareOptions {
  memberId?: string;
  maxRecords?: number;
  lockMs?: number;
  waitMs?: number;
  signal?: AbortSignal;
}

export type Outcome = "accept" | "release" | "reject" | "extend";

/** A record under a lock. Without an outcome it is delivered again when the lock ends. */
export class Job {
  constructor(
    readonly client: Client,
    readonly group: string,
    readonly lock: string,
    readonly record: StoredRecord,
  ) {}

  /** Is done. */
  accept = () => this.#answer("accept");
  /** Is delivered again, after `delayMs` or the group's delay. */
  release = (options: { delayMs?: number; error?: string } = {}) => this.#answer("release", options);
  /** Is never delivered again: a dead letter. */
  reject = (error = "") => this.#answer("reject", { error });
  /** Stays locked for `lockMs` from now. */
  extend = (lockMs: number) => this.#answer("extend", { lockMs });

  /** Throws PenstockError `lock_expired` or `lock_unknown` if the lock is over; a repeat of an outcome is harmless. */
  async #answer(outcome: Outcome, given: { delayMs?: number; lockMs?: number; error?: string } = {}): Promise<void> {
    const { topic, partition, offset, nextOffset } = this.record;
    const records = [{ topic, partition, offset, last_offset: nextOffset - 1 }];
    await this.client.call("acknowledge_records", {
      path: { group: this.group },
      body: {
        lock: this.lock,
        outcome,
        records,
        ...(given.delayMs === undefined ? {} : { delay_ms: given.delayMs }),
        ...(given.lockMs === undefined ? {} : { lock_ms: given.lockMs }),
        ...(given.error ? { error: given.error.slice(0, 1000) } : {}),
      },
    });
  }
}

export class ShareConsumer implements AsyncIterable<Job> {
  constructor(
    readonly client: Client,
    readonly group: string,
    readonly topics: readonly string[],
    readonly options: ShareOptions,
  ) {}

  /** Yields jobs as they come. Those of an answer that were not handed out yet are released when the loop ends. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Job, void, void> {
    for (;;) {
      const jobs = await this.acquire();
      try {
        while (jobs.length > 0) yield jobs.shift()!;
      } finally {
        for (const job of jobs) await job.release({ delayMs: 0 });
      }
    }
  }

  /** Locks records; empty if none came in time. */
  async acquire(): Promise<Job[]> {
    const { options } = this;
    const acquired: Operations["acquire_records"]["answer"] = await this.client.call("acquire_records", {
      path: { group: this.group },
      body: {
        topics: [...this.topics],
        max_records: options.maxRecords ?? 10,
        wait_ms: options.waitMs ?? 20_000,
        value: "base64",
        ...(options.memberId === undefined ? {} : { member_id: options.memberId }),
        ...(options.lockMs === undefined ? {} : { lock_ms: options.lockMs }),
      },
      ...(options.signal ? { signal: options.signal } : {}),
    });
    const { lock } = acquired;
    if (lock === null) return [];
    return acquired.records.map((json) => new Job(this.client, this.group, lock, new StoredRecord(json.topic, json.partition, json as Json)));
  }
}
