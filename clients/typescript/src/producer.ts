/** A producer: records of any topics, gathered into batches by partition; an outcome for each record. */
import { PenstockError } from "./errors.js";
import { Lane, type Identity, type LaneContext } from "./lane.js";
import { Delivery } from "./outcome.js";
import { keyBytes, lineOf, partitionOf, traced, type Line, type OutgoingRecord } from "./records.js";
import { Tally, type AcceptedCount, type ProducerStatistics } from "./statistics.js";
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
  line: Line;
  delivery: Delivery;
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
  readonly #tally = new Tally();
  #buffered = 0;
  #unanswered = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #idle: (() => void)[] = [];
  #room: (() => void)[] = [];
  #failure: PenstockError | undefined;
  #isPlacing = false;
  #isClosed = false;

  constructor(transport: Transport, countPartitions: (topic: string) => Promise<number>, options: ProducerOptions) {
    this.#countPartitions = countPartitions;
    this.#options = { batchBytes: 256 * 1024, lingerMs: 5, inFlightMax: 4, bufferBytes: 32 * 1024 * 1024, deliveryMs: 120_000, ...options };
    if (!(this.#options.inFlightMax >= 1 && this.#options.inFlightMax <= 16)) throw new RangeError("inFlightMax is 1 to 16");
    this.#context = {
      transport,
      inFlightMax: this.#options.inFlightMax,
      identity: (lost) => this.#askIdentity(transport, lost),
      onDone: (length, records, error) => {
        this.#buffered -= length;
        this.#unanswered -= records;
        if (error) this.#fail(records, error);
        this.#placeWaiting();
      },
      onStored: (topic, records, { timestampMs, isDuplicate }) => this.#tally.onStored(topic, records, timestampMs, isDuplicate),
    };
  }

  /** Resolves at once while there is room: `await producer.ready` before each send bounds the memory. */
  get ready(): Promise<void> {
    return this.#waiting.length === 0 ? Promise.resolve() : new Promise((resolve) => this.#room.push(resolve));
  }

  /**
   * Queues a record. Throws TypeError for a record that has no JSON, and PenstockError `client_closed`. A delivery that is
   * not awaited does no harm: `flush` and `close` throw the first failure.
   */
  send(topic: string, record: OutgoingRecord): Delivery {
    if (this.#isClosed) throw new PenstockError({ code: "client_closed", detail: "the producer is closed" });
    record = traced(record, this.#context.transport.traceContext?.());
    const line = lineOf(record);
    const delivery = new Delivery();
    this.#unanswered++;
    if (this.#waiting.length > 0 || !this.#isPlaced(topic, record, line, delivery)) this.#waiting.push({ topic, record, line, delivery });
    return delivery;
  }

  statistics(): ProducerStatistics {
    const { recordsAcknowledged, recordsFailed, batches, duplicates } = this.#tally;
    return { recordsAcknowledged, recordsFailed, batches, duplicates, unanswered: this.#unanswered, bufferedLength: this.#buffered };
  }

  /** Returns what was acknowledged since the last call, by topic and ten minutes; `penstock ingest audit --clients` reads them as lines of JSON. */
  takeAcceptedCounts(): AcceptedCount[] {
    return this.#tally.takeAccepted();
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
    if (this.#isPlacing) return; // a lane that fails its batches at once calls back
    this.#isPlacing = true;
    let count = 0;
    for (const { topic, record, line, delivery } of this.#waiting) {
      if (!this.#isPlaced(topic, record, line, delivery)) break;
      count++;
    }
    this.#waiting.splice(0, count);
    this.#isPlacing = false;
    if (this.#waiting.length === 0) this.#room.splice(0).forEach((resolve) => resolve());
    if (this.#unanswered === 0) this.#idle.splice(0).forEach((resolve) => resolve());
    else if (this.#idle.length > 0) this.#closeBatches();
  }

  /** Puts a record into its batch. Returns false if there is no room, or if the partitions of its topic are not known. */
  #isPlaced(name: string, record: OutgoingRecord, line: Line, delivery: Delivery): boolean {
    const topic = this.#topics.get(name);
    if (!topic) void this.#learn(name);
    if (!topic || (this.#buffered > 0 && this.#buffered + line.text.length > this.#options.bufferBytes)) return false;
    this.#place(name, topic, record, line, delivery);
    return true;
  }

  #place(name: string, topic: Topic, record: OutgoingRecord, line: Line, delivery: Delivery): void {
    const { batchBytes, deliveryMs, lingerMs } = this.#options;
    const { length } = line.text;
    const isFree = record.partition === undefined && record.key === undefined;
    const partition = record.partition ?? (record.key === undefined ? topic.current : partitionOf(keyBytes(record.key), topic.partitions));
    let lane = topic.lanes.get(partition);
    if (!lane) topic.lanes.set(partition, (lane = new Lane(name, partition, this.#context)));
    this.#buffered += length;
    if (lane.openLength > 0 && lane.openLength + length > batchBytes) lane.close(deliveryMs);
    lane.add(line, delivery);
    if (lane.openLength >= batchBytes) {
      lane.close(deliveryMs);
      if (isFree) topic.current = (topic.current + 1) % topic.partitions;
    } else {
      this.#timer ??= setTimeout(() => this.#closeBatches(), lingerMs);
    }
  }

  #closeBatches(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const [name, topic] of this.#topics) {
      if (now() - topic.askedAt > LEARN_PARTITIONS_MS) void this.#learn(name);
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
    for (const { delivery } of rejected) delivery.place(error);
    if (rejected.length > 0) this.#fail(rejected.length, error);
    this.#unanswered -= rejected.length;
  }

  #fail(records: number, error: PenstockError): void {
    this.#failure ??= error;
    this.#tally.recordsFailed += records;
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
