/**
 * Sends the batches of one partition with sequence numbers: several at once, each stored once and in order.
 *
 * A batch that fails for good leaves a hole in the numbers, and those behind it can never be stored under theirs. The
 * lane then waits for every answer, raises its epoch, and sends what was not stored under new numbers. If the failed
 * batch may still arrive, a batch behind it with an unknown outcome may too: it fails as `maybeDone`, for it could
 * otherwise be stored twice.
 */
import { PenstockError, isPenstockError } from "./errors.js";
import { Outcome, type Delivery } from "./outcome.js";
import { Lines } from "./lines.js";
import type { Line } from "./records.js";
import { mayRetry, now, retryDelayMs, sleep, type Message, type Transport } from "./transport.js";

export interface Identity {
  producer_id: number;
  producer_epoch: number;
}

export interface LaneContext {
  transport: Transport;
  inFlightMax: number;
  /** Returns the producer's id, or another one in place of `lost`. */
  identity: (lost?: Identity) => Promise<Identity>;
  /** Called with the length of a batch that has its outcome. */
  onDone: (length: number, records: number, error?: PenstockError) => void;
  /** Called with what was stored, and when by the clock of the node. */
  onStored: (topic: string, records: number, answer: Stored) => void;
}

export interface Stored {
  base: number | null;
  timestampMs: number | undefined;
  isDuplicate: boolean;
}

interface Batch {
  lines: Lines;
  /** The length by which the producer has counted it. */
  counted: number;
  outcome: Outcome;
  /** The rank of the first record in the outcome. */
  from: number;
  until: number;
  order: number;
  isMaybeDone: boolean;
  message?: Message;
}

interface Break {
  order: number;
  isMaybeDone: boolean;
  isIdLost: boolean;
}

const EPOCH_MAX = 32_767;
const SEQUENCES = 2 ** 31;
const FORGOTTEN_MS = 60_000; // after a pause the node may have forgotten the producer: one batch goes alone
const RESTARTS_MAX = 8; // in a row, because the node does not know the numbers before these
const OF_ONE_RECORD = new Set([400, 413, 422]); // one record may be to blame: halves of the batch are sent

export class Lane {
  #open: Batch | undefined;
  readonly #ready: Batch[] = [];
  #inFlight: Batch[] = [];
  #again: Batch[] = [];
  #identity: Identity | undefined;
  #epoch = 0;
  #sequence = 0;
  #order = 0;
  #window = 1;
  #answeredAt = 0;
  #restarts = 0;
  #break: Break | undefined;
  #fenced: PenstockError | undefined;
  #isAsking = false;
  #changed = signal();

  constructor(
    readonly topic: string,
    readonly partition: number,
    readonly context: LaneContext,
  ) {}

  /** The length of the batch that is being filled. */
  get openLength(): number {
    return this.#open?.counted ?? 0;
  }

  add(line: Line, delivery: Delivery): void {
    const open = (this.#open ??= newBatch(new Outcome(this.topic, this.partition), new Lines(line.isPlain)));
    open.lines.add(line);
    open.counted += line.text.length;
    delivery.place(open.outcome, open.outcome.add());
  }

  /** Makes a batch of the open records, and sends what may be sent. */
  close(deadlineMs: number): void {
    if (this.#open) {
      this.#open.until = now() + deadlineMs;
      this.#ready.push(this.#open);
      this.#open = undefined;
    }
    this.#pump();
  }

  #pump(): void {
    if (this.#fenced) {
      for (const batch of this.#ready.splice(0)) this.#fail(batch, this.#fenced);
      return;
    }
    if (this.#break || this.#ready.length === 0) return;
    if (!this.#identity) {
      void this.#askIdentity();
      return;
    }
    if (this.#inFlight.length === 0 && now() - this.#answeredAt > FORGOTTEN_MS) this.#window = 1;
    while (this.#inFlight.length < this.#window && this.#ready.length > 0) {
      const batch = this.#ready.shift()!;
      batch.order = this.#order++;
      batch.message = this.#messageOf(batch, this.#identity);
      this.#sequence = (this.#sequence + batch.lines.count) % SEQUENCES;
      this.#inFlight.push(batch);
      void this.#send(batch);
    }
  }

  async #askIdentity(lost?: Identity): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    try {
      const identity = await this.context.identity(lost);
      [this.#identity, this.#epoch, this.#sequence, this.#window] = [identity, identity.producer_epoch, 0, 1];
    } catch (error) {
      for (const batch of this.#ready.splice(0)) this.#fail(batch, asError(error));
    } finally {
      this.#isAsking = false;
    }
    this.#pump();
  }

  #messageOf(batch: Batch, identity: Identity): Message {
    return {
      method: "POST",
      path: `/v1/topics/${encodeURIComponent(this.topic)}/partitions/${this.partition}/records?ndjson=${batch.lines.isPlain ? "values" : "records"}`,
      body: batch.lines.bytes(),
      headers: {
        "Content-Type": "application/x-ndjson",
        "Producer-Id": `${identity.producer_id}`,
        "Producer-Epoch": `${this.#epoch}`,
        "Producer-Seq": `${this.#sequence}`,
      },
      isRepeatable: true,
    };
  }

  async #send(batch: Batch): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const isOldest = this.#inFlight[0] === batch; // before it is sent: later its answer may be older than the others
      try {
        const answer = await this.context.transport.attempt(batch.message!, batch.until);
        return this.#store(batch, storedOf(answer.json));
      } catch (caught) {
        const error = asError(caught);
        this.#answeredAt = now();
        const wasMaybeDone = batch.isMaybeDone;
        batch.isMaybeDone ||= error.maybeDone;
        const isBehind = this.#break !== undefined && batch.order > this.#break.order;
        if (error.code === "duplicate_older_than_window") return this.#store(batch, { base: null, timestampMs: undefined, isDuplicate: true });
        if (error.code === "producer_fenced") {
          this.#fenced = error;
          return this.#settle(batch, [], error);
        }
        if (isBehind) return this.#settleBehind(batch, error);
        if (error.code === "unknown_producer") return this.#restart(batch, error, true);
        if (error.code === "sequence_gap") {
          if (isOldest) return this.#restart(batch, error, false);
          if (this.#inFlight[0] !== batch) await this.#changed.wait(); // one before it is on its way
          attempt = 0;
          continue;
        }
        const delayMs = retryDelayMs(error, attempt);
        if (mayRetry(error, true) && now() + delayMs < batch.until) {
          await sleep(delayMs);
          continue;
        }
        const isOfOne = OF_ONE_RECORD.has(error.status) && batch.lines.count > 1 && !wasMaybeDone && !error.maybeDone;
        this.#breakAt(batch, false);
        return isOfOne ? this.#settle(batch, halves(batch)) : this.#settle(batch, [], error);
      }
    }
  }

  /** Sends the batch under new numbers: the node does not know what was before them. */
  #restart(batch: Batch, error: PenstockError, isIdLost: boolean): void {
    this.#breakAt(batch, isIdLost);
    if (batch.isMaybeDone || ++this.#restarts > RESTARTS_MAX) this.#settle(batch, [], error);
    else this.#settle(batch, [batch]);
  }

  #breakAt(batch: Batch, isIdLost: boolean): void {
    const before = this.#break;
    this.#break = {
      order: Math.min(batch.order, before?.order ?? Infinity),
      isMaybeDone: batch.isMaybeDone || (before?.isMaybeDone ?? false),
      isIdLost: isIdLost || (before?.isIdLost ?? false),
    };
  }

  #settleBehind(batch: Batch, error: PenstockError): void {
    if (this.#break!.isMaybeDone && batch.isMaybeDone) this.#settle(batch, [], error);
    else this.#settle(batch, [batch]);
  }

  #store(batch: Batch, stored: Stored): void {
    this.#answeredAt = now();
    this.#restarts = 0;
    this.#window = this.context.inFlightMax;
    batch.outcome.decide(batch.from, batch.lines.count, stored.base);
    this.context.onStored(this.topic, batch.lines.count, stored);
    this.context.onDone(batch.counted, batch.lines.count);
    this.#settle(batch, []);
  }

  /** Ends a batch's time in flight: with an error, or with batches to send in its place. */
  #settle(batch: Batch, again: Batch[], error?: PenstockError): void {
    this.#inFlight = this.#inFlight.filter((other) => other !== batch);
    if (error) this.#fail(batch, batch.isMaybeDone ? error.asMaybeDone() : error);
    this.#again.push(...again.map((part) => ({ ...part, isMaybeDone: false })));
    if (this.#break && this.#inFlight.length === 0) {
      const { isIdLost } = this.#break;
      this.#break = undefined;
      this.#ready.unshift(...this.#again.sort((a, b) => a.order - b.order));
      this.#again = [];
      [this.#epoch, this.#sequence, this.#window] = [this.#epoch + 1, 0, 1];
      const lost = this.#identity;
      if (isIdLost || this.#epoch > EPOCH_MAX) this.#identity = undefined;
      if (!this.#identity && !this.#fenced) void this.#askIdentity(lost);
    }
    this.#changed.wake();
    this.#pump();
  }

  #fail(batch: Batch, error: PenstockError): void {
    batch.outcome.decide(batch.from, batch.lines.count, null, error);
    this.context.onDone(batch.counted, batch.lines.count, error);
  }
}

function newBatch(outcome: Outcome, lines: Lines): Batch {
  return { lines, counted: 0, outcome, from: 0, until: 0, order: 0, isMaybeDone: false };
}

function halves(batch: Batch): Batch[] {
  const [first, second] = batch.lines.halves();
  const counted = batch.counted >> 1;
  return [
    { ...batch, lines: first, counted },
    { ...batch, lines: second, counted: batch.counted - counted, from: batch.from + first.count },
  ];
}

function storedOf(json: unknown): Stored {
  const result = (json as { results?: { base_offset?: unknown; timestamp?: unknown; duplicate?: unknown }[] } | null)?.results?.[0];
  if (result === undefined || (typeof result.base_offset !== "number" && result.base_offset !== null)) {
    throw new PenstockError({ code: "not_a_node", detail: "the answer to a produce has no position", retryable: true, noSideEffects: false });
  }
  const timestampMs = typeof result.timestamp === "number" ? result.timestamp : undefined;
  return { base: result.base_offset as number | null, timestampMs, isDuplicate: result.duplicate === true };
}

function asError(error: unknown): PenstockError {
  if (isPenstockError(error)) return error;
  return new PenstockError({ code: "client_error", detail: String(error), noSideEffects: false }, { cause: error });
}

function signal(): { wait: () => Promise<void>; wake: () => void } {
  let waiting: (() => void)[] = [];
  return {
    wait: () => new Promise((resolve) => waiting.push(resolve)),
    wake: () => waiting.splice(0).forEach((resolve) => resolve()),
  };
}
