/**
 * The body of a batch: NDJSON, gathered as bytes. Strings that live until the answer comes are copied by the garbage
 * collector again and again, which costs more than encoding them.
 */
import { asRecordLine, type Line } from "./records.js";

const CHUNK = 4096; // characters that are encoded at once: a call for each record costs more

export class Lines {
  count = 0;
  #bytes = new Uint8Array(0);
  #written = 0;
  #text = "";

  /** Lines are bare values, which the node stores fastest, until a record needs more. */
  constructor(public isPlain: boolean) {}

  add({ text, isPlain }: Line): void {
    if (this.isPlain && !isPlain) this.#becomeRecords();
    this.#text += this.isPlain === isPlain ? text : asRecordLine(text.slice(0, -1));
    this.count++;
    if (this.#text.length >= CHUNK) this.#encode();
  }

  bytes(): Uint8Array<ArrayBuffer> {
    this.#encode();
    return this.#bytes.subarray(0, this.#written);
  }

  halves(): [Lines, Lines] {
    const texts = new TextDecoder().decode(this.bytes()).split("\n");
    const middle = this.count >> 1;
    return [this.#of(texts.slice(0, middle)), this.#of(texts.slice(middle, -1))];
  }

  #of(texts: string[]): Lines {
    const lines = new Lines(this.isPlain);
    for (const text of texts) lines.add({ text: text + "\n", isPlain: this.isPlain });
    return lines;
  }

  #becomeRecords(): void {
    const texts = new TextDecoder().decode(this.bytes()).split("\n").slice(0, -1);
    this.#written = 0;
    this.#text = texts.map(asRecordLine).join("");
    this.isPlain = false;
  }

  #encode(): void {
    const room = this.#written + this.#text.length * 3; // of UTF-8
    if (room > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(room, 2 * this.#bytes.length));
      grown.set(this.#bytes.subarray(0, this.#written));
      this.#bytes = grown;
    }
    this.#written += new TextEncoder().encodeInto(this.#text, this.#bytes.subarray(this.#written)).written;
    this.#text = "";
  }
}
