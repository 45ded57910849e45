/** A producer: records of any topics, gathered into batches by partition; a promise for each record. */
import { PenstockError } from "./errors.js";
import { Lane, type Identity, type LaneContext, type Position } from "./lane.js";
import { keyBytes, lineOf, partitionOf, type OutgoingRecord } from "./records.js";
import { now, type Transport } from "./transport.js";

export interface ProducerOptions {
  /** A batch is sent when it has this many bytes. */
  batchBytes?: number;
  /** A batch is sent after this time at the latest. */
  lingerMs?: number;
  /** Requests at once for a partition, at most 16. */
  inFlightMax?: number;
  /** Records that wait for their positions; `send` holds back more until there is room. */
  bufferBytes?: number;
  /** How long a batch is tried. */
  deliveryMs?: number;
}

interface Waiting {
  topic: string;
  record: OutgoingRecord;
  delivery: { line: string; resolve: (position: Position) => void; reject: (error: PenstockError) => void };
}

interface Topic {
  partitions: number;
  askedAt: number;
  lanes: Map<number, Lane>;
  current: number;
}

const LEARN_PARTITIONS_MS = 60_000;

export class Producer {
  readonly #options: Required<ProducerOptions>;
  readonly #topics = new Map<string, Topic>();
  readonly #asking = new Set<string>();
  readonly #context: LaneContext;
  readonly #countPartitions: (topic: string) => Promise<number>;
  #identity: Promise<Identity> | undefined;
  #waiting: Waiting[] = [];
  #bytes = 0;
  #unanswered = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #idle: (() => void)[] = [];
  #room: (() => void)[] = [];
  #failure: PenstockError | undefined;
  #isClosed = false;

  constructor(transport: Transport, countPartitions: (topic: string) => Promise<number>, options: ProducerOptions) {
    this.#countPartitions = countPartitions;
    this.#options = { batchBytes: 256 * 1024, lingerMs: 5, inFlightMax: 4, bufferBytes: 32 * 1024 * 1024, deliveryMs: 120_000, ...options };
    if (!(this.#options.inFlightMax >= 1 && this.#options.inFlightMax <= 16)) throw new RangeError("inFlightMax is 1 to 16");
    this.#context = {
      transport,
      inFlightMax: this.#options.inFlightMax,
      identity: (lost) => this.#askIdentity(transport, lost),
      onDone: (bytes, records, error) => {
        this.#bytes -= bytes;
        this.#unanswered -= records;
        this.#failure ??= error;
        this.#placeWaiting();
      },
    };
  }

  /** Resolves at once while there is room: `await producer.ready` before each send bounds the memory. */
  get ready(): Promise<void> {
    return this.#waiting.length === 0 ? Promise.resolve() : new Promise((resolve) => this.#room.push(resolve));
  }

  /**
   * Queues a record. The promise has its position, or rejects with a PenstockError whose `maybeDone` says whether it
   * may be stored. A promise that is not awaited does no harm: `flush` and `close` throw the first failure.
   */
  send(topic: string, record: OutgoingRecord): Promise<Position> {
    const promise = new Promise<Position>((resolve, reject) => {
      if (this.#isClosed) throw new PenstockError({ code: "client_closed", detail: "the producer is closed" });
      const delivery = { line: lineOf(record), resolve, reject };
      this.#unanswered++;
      if (this.#waiting.length === 0 && this.#isPlaced(topic, record, delivery)) return;
      this.#waiting.push({ topic, record, delivery });
    });
    promise.catch(ignore);
    return promise;
  }

  /** Waits until no record is without an outcome. Throws the first failure since the last flush. */
  async flush(): Promise<void> {
    this.#closeBatches();
    while (this.#unanswered > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) throw failure;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.flush();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #placeWaiting(): void {
    let count = 0;
    for (const { topic, record, delivery } of this.#waiting) {
      if (!this.#isPlaced(topic, record, delivery)) break;
      count++;
    }
    if (count === this.#waiting.length) this.#waiting.length = 0;
    else this.#waiting.splice(0, count);
    if (this.#waiting.length === 0) this.#room.splice(0).forEach((resolve) => resolve());
    if (this.#unanswered === 0) this.#idle.splice(0).forEach((resolve) => resolve());
    else if (this.#idle.length > 0) this.#closeBatches();
  }

  /** Puts a record into its batch. Returns false if there is no room, or if the partitions of its topic are not known. */
  #isPlaced(topic: string, record: OutgoingRecord, delivery: Waiting["delivery"]): boolean {
    const known = this.#topics.get(topic);
    if (!known || now() - known.askedAt > LEARN_PARTITIONS_MS) void this.#learn(topic);
    if (!known || (this.#bytes > 0 && this.#bytes + delivery.line.length > this.#options.bufferBytes)) return false;
    this.#place(topic, known, record, delivery);
    return true;
  }

  #place(topic: string, known: Topic, record: OutgoingRecord, delivery: Waiting["delivery"]): void {
    const bytes = delivery.line.length;
    const isFree = record.partition === undefined && record.key === undefined;
    const partition = record.partition ?? (record.key === undefined ? known.current : partitionOf(keyBytes(record.key), known.partitions));
    let lane = known.lanes.get(partition);
    if (!lane) known.lanes.set(partition, (lane = new Lane(topic, partition, this.#context)));
    this.#bytes += bytes;
    if (lane.open.length > 0 && lane.openBytes + bytes > this.#options.batchBytes) lane.close(this.#options.deliveryMs);
    lane.add(delivery, bytes);
    if (lane.openBytes >= this.#options.batchBytes) {
      lane.close(this.#options.deliveryMs);
      if (isFree) known.current = (known.current + 1) % known.partitions;
    } else {
      this.#timer ??= setTimeout(() => this.#closeBatches(), this.#options.lingerMs);
    }
  }

  #closeBatches(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const topic of this.#topics.values()) {
      for (const lane of topic.lanes.values()) lane.close(this.#options.deliveryMs);
      topic.current = (topic.current + 1) % topic.partitions;
    }
  }

  async #learn(name: string): Promise<void> {
    if (this.#asking.has(name)) return;
    this.#asking.add(name);
    const topic = this.#topics.get(name);
    try {
      const partitions = await this.#countPartitions(name);
      if (topic) [topic.partitions, topic.askedAt] = [partitions, now()];
      else this.#topics.set(name, { partitions, askedAt: now(), lanes: new Map(), current: Math.floor(Math.random() * partitions) });
    } catch (error) {
      if (topic) topic.askedAt = now();
      else this.#rejectWaiting(name, error as PenstockError);
    } finally {
      this.#asking.delete(name);
    }
    this.#placeWaiting();
  }

  #rejectWaiting(topic: string, error: PenstockError): void {
    const rejected = this.#waiting.filter((waiting) => waiting.topic === topic);
    this.#waiting = this.#waiting.filter((waiting) => waiting.topic !== topic);
    for (const { delivery } of rejected) delivery.reject(error);
    if (rejected.length > 0) this.#failure ??= error;
    this.#unanswered -= rejected.length;
  }

  #askIdentity(transport: Transport, lost?: Identity): Promise<Identity> {
    const ask = async (): Promise<Identity> => {
      const present = await this.#identity?.catch(() => undefined);
      if (present && present !== lost) return present;
      const answer = await transport.send({ method: "POST", path: "/v1/producers", isRepeatable: true });
      return answer.json as Identity;
    };
    return (this.#identity = ask());
  }
}

function ignore(): void {}
