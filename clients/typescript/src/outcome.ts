/** The outcomes of records: one object for the records of a batch as it was filled, and a light one for each record. */
import type { PenstockError } from "./errors.js";

export interface Position {
  topic: string;
  partition: number;
  /** null if a repeat was recognised whose position the node has forgotten. */
  offset: number | null;
}

interface Span {
  from: number;
  base: number | null;
  error: PenstockError | undefined;
}

/** The outcome of a batch. Parts of a batch that is halved are decided one after the other; the promise waits for all. */
export class Outcome {
  #undecided = 0;
  readonly #spans: Span[] = [];
  readonly #decided: Promise<void>;
  #resolve!: () => void;

  constructor(
    readonly topic: string,
    readonly partition: number,
  ) {
    this.#decided = new Promise((resolve) => (this.#resolve = resolve));
  }

  /** Returns the rank of one more record. */
  add(): number {
    return this.#undecided++;
  }

  decide(from: number, count: number, base: number | null, error?: PenstockError): void {
    this.#spans.push({ from, base, error });
    if ((this.#undecided -= count) === 0) this.#resolve();
  }

  async position(rank: number): Promise<Position> {
    await this.#decided;
    const span = this.#spans.reduce((best, span) => (span.from <= rank && (best.from > rank || span.from > best.from) ? span : best));
    if (span.error) throw span.error;
    const offset = span.base === null ? null : span.base + rank - span.from;
    return { topic: this.topic, partition: this.partition, offset };
  }
}

/**
 * A promise of a record's position. It rejects with a PenstockError whose `maybeDone` says whether the record may be stored.
 * It costs a real promise only if it is awaited, and does no harm if it is not.
 */
export class Delivery implements PromiseLike<Position> {
  #outcome: Outcome | PenstockError | undefined;
  #rank = 0;
  #placed: Promise<void> | undefined;
  #resolve: (() => void) | undefined;

  then<A = Position, B = never>(
    onStored?: ((position: Position) => A | PromiseLike<A>) | null,
    onFailed?: ((error: PenstockError) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#position().then(onStored, onFailed);
  }

  catch<B>(onFailed: (error: PenstockError) => B | PromiseLike<B>): Promise<Position | B> {
    return this.#position().catch(onFailed);
  }

  /** @internal */
  place(outcome: Outcome | PenstockError, rank = 0): void {
    this.#outcome = outcome;
    this.#rank = rank;
    this.#resolve?.();
  }

  async #position(): Promise<Position> {
    if (!this.#outcome) await (this.#placed ??= new Promise((resolve) => (this.#resolve = resolve)));
    const outcome = this.#outcome!;
    if (outcome instanceof Error) throw outcome;
    return outcome.position(this.#rank);
  }
}
