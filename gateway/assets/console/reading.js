// @ts-check
// Reads records: from the end, a time or an offset, with conditions, and as they arrive. Values come as bytes in base64,
// so that nothing between the log and the screen rounds a number or mends a text.
import { call, parseExact, send } from "./contract.js";
import { fromBase64, oneLine, utf8 } from "./format.js";

export const PAGE_RECORDS = 50;
const SEARCHED_BACK = 10000;
const ANSWER_BYTES = 4 * 1024 * 1024;

/** The conditions of a filter, which are written with && between them. */
export const conditions = (filter) => (filter ?? "").split("&&").map((part) => part.trim()).filter(Boolean);

/** A record as the page shows it: the first of its bytes as text, the rest on request. */
export function shownRecord(record, partition) {
  const value = record.value_base64 === undefined ? null : fromBase64(record.value_base64);
  const schema = schemaOf(value), text = value && (schema ? jsonBehind(value) : utf8(value));
  const key = record.key ?? (record.key_base64 ? utf8(fromBase64(record.key_base64)) ?? `base64 ${record.key_base64}` : null);
  return {
    partition, offset: record.offset, timestamp: record.timestamp, key, headers: record.headers ?? {}, value, text, schema, raw: record, isDamaged: record.error,
    line: value === null ? null : text === null ? null : oneLine(text),
  };
}

/** The schema's id in front of a value of a registry: a zero, and four bytes. */
const schemaOf = (value) => (value?.length > 5 && value[0] === 0 ? new DataView(value.buffer).getUint32(1) : null);

/** The JSON behind a schema's id; null for Avro and Protobuf. */
function jsonBehind(value) {
  const text = utf8(value.subarray(5));
  try { JSON.parse(text); return text; } catch { return null; }
}

/** The positions to begin at, by partition, for `from`: newest, oldest, a time or one offset. */
export async function startOf(topic, { partition, from, time, offset, filter }, signal) {
  const { partitions } = await call("describe_topic", { names: { topic }, signal });
  const chosen = partitions.filter((row) => (partition === "" || row.partition === Number(partition)) && row.log_start !== null);
  const each = filter ? SEARCHED_BACK : Math.max(5, Math.ceil((2 * PAGE_RECORDS) / chosen.length));
  const positions = [];
  for (const row of chosen) {
    let start = Math.max(row.log_start, row.high_watermark - each);
    if (from === "oldest") start = row.log_start;
    if (from === "offset") start = Math.min(Math.max(Number(offset) || 0, row.log_start), row.high_watermark);
    if (from === "time") {
      const found = await call("find_offsets", { names: { topic, partition: row.partition }, query: { timestamp: time }, signal });
      start = found.offset ?? row.high_watermark;
    }
    positions.push({ topic, partition: row.partition, offset: start, end: row.high_watermark });
  }
  return positions;
}

/** Reads once from each position. Returns the records, the positions to go on at, and what could not be read. */
export async function readAt(positions, { filter, each }, signal) {
  if (positions.length === 0) return { records: [], next: [], problems: [] };
  const body = {
    partitions: positions.map(({ topic, partition, offset }) => ({ topic, partition, offset })),
    value: "base64", max_records: Math.min(1000, each * positions.length), max_bytes: ANSWER_BYTES, ...(filter ? { filter: conditions(filter) } : {}),
  };
  const answer = await call("fetch_many", { body, signal });
  const records = [], problems = [];
  const next = positions.map((position, place) => {
    const part = answer.partitions[place];
    if (part.problem) { problems.push(part.problem); return position; }
    records.push(...part.records.map((record) => shownRecord(record, part.partition)));
    return { ...position, offset: part.next_offset, end: part.high_watermark };
  });
  return { records, next, problems };
}

/** Follows a topic from its end. Calls `onRecord` for each record; returns when the stream ends. Throws Problem. */
export async function tail(topic, { filter, resume }, onRecord, signal) {
  const query = { value: "base64", filter: conditions(filter), ...(resume ? { positions: resume } : { from: "latest" }) };
  const response = await send("tail_topic", { names: { topic }, query, accept: "text/event-stream", signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").filter((line) => line && !line.startsWith(":")).map((line) => [line.split(":")[0], line.slice(line.indexOf(":") + 1).trimStart()]));
      if (fields.data) onRecord(parseExact(fields.data), fields);
    }
  }
}
