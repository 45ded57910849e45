/** The counts of a producer, a step for each batch; those of topics and ten minutes are for `penstock ingest audit`. */
export interface AcceptedCount {
  topic: string;
  from_ms: number;
  records: number;
}

export interface ProducerStatistics {
  recordsAcknowledged: number;
  recordsFailed: number;
  batches: number;
  /** Repeats that the node had already stored. */
  duplicates: number;
  /** Records without an outcome. */
  unanswered: number;
  /** Their length. */
  bufferedLength: number;
}

const PERIOD_MS = 600_000; // ten minutes, as nodes and ingestion count
const COUNTS_MAX = 10_000; // topics and periods that are counted until they are taken; further ones are not

export class Tally {
  recordsAcknowledged = 0;
  recordsFailed = 0;
  batches = 0;
  duplicates = 0;
  #accepted = new Map<string, AcceptedCount>();

  onStored(topic: string, records: number, timestampMs: number | undefined, isDuplicate: boolean): void {
    this.recordsAcknowledged += records;
    this.batches++;
    if (isDuplicate) this.duplicates++;
    if (timestampMs === undefined) return;
    const from_ms = Math.floor(timestampMs / PERIOD_MS) * PERIOD_MS;
    const name = `${from_ms} ${topic}`;
    const counted = this.#accepted.get(name);
    if (counted) counted.records += records;
    else if (this.#accepted.size < COUNTS_MAX) this.#accepted.set(name, { topic, from_ms, records });
  }

  takeAccepted(): AcceptedCount[] {
    const taken = [...this.#accepted.values()];
    this.#accepted = new Map();
    return taken;
  }
}
