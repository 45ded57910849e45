// JSON lines from stdin into one partition, each exactly once and in their order. Needs Node 18 or newer.
//   node produce.mjs URL TOPIC PARTITION <lines
// Producer ids and sequences as in docs/produce.md, with up to four requests at once.
// Says where each batch is stored; ends with 0 only if all are.
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const [url, topic, partition] = process.argv.slice(2);
const BATCH_LINES = Number(process.env.BATCH_LINES ?? 100);
const IN_FLIGHT_MAX = 4; // a node remembers the last 16 batches
const GIVE_UP_MS = 600_000;
const SEQUENCES = 2 ** 31; // after 2^31-1 comes 0
const CONTENT_TYPE = { "Content-Type": "application/x-ndjson" };

// The answer, read to its end, or null if there is none: then nobody knows whether the request was carried out.
async function attempt(path, headers, body) {
  try {
    const signal = AbortSignal.timeout(40_000);
    const answer = await fetch(url + path, { method: "POST", headers, body, signal });
    return { status: answer.status, headers: answer.headers, json: JSON.parse(await answer.text()) };
  } catch {
    return null;
  }
}

const isRepeatable = (answer) => !answer || [408, 429].includes(answer.status) || answer.status >= 500;

function pause(answer, tries) {
  const asked_s = Number(answer?.headers.get("Retry-After"));
  return sleep(asked_s ? asked_s * 1000 : Math.min(50 * 2 ** tries, 2000) * (0.5 + Math.random()));
}

async function newProducer() {
  for (let tries = 0; ; tries++) {
    const answer = await attempt("/v1/producers", {}, undefined);
    if (answer?.status === 201) return answer.json;
    if (!isRepeatable(answer)) throw new Error(`no producer id: ${JSON.stringify(answer.json)}`);
    await pause(answer, tries);
  }
}

const unanswered = []; // sequences of the batches under way, in their order

async function store(producer, sequence, first, lines) {
  const path = `/v1/topics/${topic}/partitions/${partition}/records`;
  const body = lines.map((line) => line + "\n").join("");
  const headers = {
    ...CONTENT_TYPE,
    "Producer-Id": `${producer.producer_id}`,
    "Producer-Epoch": `${producer.producer_epoch}`,
    "Producer-Seq": `${sequence}`,
  };
  const which = `lines ${first}-${first + lines.length - 1}`;
  const since = Date.now();
  for (let tries = 0; Date.now() - since < GIVE_UP_MS; tries++) {
    const isOldest = unanswered[0] === sequence; // before it is sent: the answer may be older than others' answers
    const answer = await attempt(path, headers, body);
    const code = answer?.json.code;
    if (answer?.status === 200) return `stored ${which} at ${answer.json.results[0].base_offset}`;
    if (code === "duplicate_older_than_window") return `stored ${which}`;
    const isTooEarly = code === "sequence_gap" && !isOldest; // one that goes before it is still on its way
    if (!isTooEarly && !isRepeatable(answer)) throw new Error(`refused for good: ${JSON.stringify(answer.json)}`);
    await pause(answer, isTooEarly ? 0 : tries);
  }
  throw new Error(`gave up: ${which} may be stored or not`);
}

async function* batches(input) {
  let lines = [];
  for await (const line of input) {
    if (lines.push(line) === BATCH_LINES) {
      yield lines;
      lines = [];
    }
  }
  if (lines.length) yield lines;
}

async function main() {
  const producer = await newProducer();
  const underWay = new Set();
  let sequence = 0;
  let first = 1;
  for await (const lines of batches(createInterface({ input: process.stdin }))) {
    const own = sequence;
    unanswered.push(own);
    const one = store(producer, own, first, lines).then((text) => {
      console.log(text);
      unanswered.splice(unanswered.indexOf(own), 1);
      underWay.delete(one);
    });
    underWay.add(one);
    sequence = (sequence + lines.length) % SEQUENCES;
    if (first === 1) await one; // alone: until it is stored, the node cannot tell which sequence is the first
    first += lines.length;
    if (underWay.size >= IN_FLIGHT_MAX) await Promise.race(underWay);
  }
  await Promise.all(underWay);
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
