// @ts-check
// Numbers, sizes, times and bytes as text. Unknown is a dash and never a zero.

export const DASH = "–";
const INTEGERS = new Intl.NumberFormat("en-US");
const known = (value) => value !== null && value !== undefined && value !== "";

export function count(value) {
  if (!known(value)) return DASH;
  return typeof value === "number" ? INTEGERS.format(value) : INTEGERS.format(BigInt(value));
}

export function bytes(value) {
  if (!known(value)) return DASH;
  let number = Number(value);
  if (number < 1024) return `${Math.round(number)} B`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    number /= 1024;
    if (number < 1024 || unit === "PiB") return `${number < 10 ? number.toFixed(2) : number < 100 ? number.toFixed(1) : Math.round(number)} ${unit}`;
  }
  return "";
}

/** A rate a second, short: 1.2k. */
export function rate(value) {
  if (!known(value)) return DASH;
  if (value < 10) return value === 0 ? "0" : value.toFixed(1);
  for (const [limit, unit] of [[1e3, ""], [1e6, "k"], [1e9, "M"]]) {
    if (value < limit) return `${(value / (limit / 1e3)).toFixed(value / (limit / 1e3) < 10 && unit ? 1 : 0)}${unit}`;
  }
  return `${(value / 1e9).toFixed(1)}G`;
}

export function duration(ms) {
  if (!known(ms)) return DASH;
  const sign = ms < 0 ? "-" : "";
  const s = Math.abs(Number(ms)) / 1000;
  if (s === 0) return "0 s";
  if (s < 1) return `${sign}${Math.round(s * 1000)} ms`;
  if (s < 120) return `${sign}${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 7200) return `${sign}${Math.round(s / 60)} min`;
  if (s < 172800) return `${sign}${Math.round(s / 3600)} h`;
  return `${sign}${Math.round(s / 86400)} d`;
}

export const seconds = (value) => duration(known(value) ? value * 1000 : null);

const ZONE = "penstock-zone";
export const zone = {
  isLocal: localStorage.getItem(ZONE) === "local",
  set(isLocal) { this.isLocal = isLocal; localStorage.setItem(ZONE, isLocal ? "local" : "utc"); },
};

/** `2026-11-25 16:40:03.120Z`, or the same in the reader's zone with its offset. */
export function time(ms) {
  if (!known(ms)) return DASH;
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return String(ms);
  if (!zone.isLocal) return date.toISOString().replace("T", " ");
  const away = -date.getTimezoneOffset();
  const shifted = new Date(date.getTime() + away * 60000).toISOString().replace("T", " ").slice(0, -1);
  return `${shifted}${away < 0 ? "-" : "+"}${String(Math.floor(Math.abs(away) / 60)).padStart(2, "0")}:${String(Math.abs(away) % 60).padStart(2, "0")}`;
}

export function ago(ms, now = Date.now()) {
  if (!known(ms)) return DASH;
  return now - ms < 0 ? `in ${duration(ms - now)}` : `${duration(now - ms)} ago`;
}

export function plural(number, word, words = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : words}`;
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** The text of bytes, or null if they are not UTF-8. */
export function utf8(data) {
  try { return new TextDecoder("utf-8", { fatal: true }).decode(data); } catch { return null; }
}

/** JSON with line breaks and indents. Every token is as it was sent: numbers, escapes and repeated names too. */
export function indentJson(text) {
  try { JSON.parse(text); } catch { return null; }
  let depth = 0, out = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (/^[{[]\s*[}\]]$/.test(token)) out += token[0] + token.at(-1);
    else if (token === "{" || token === "[") { depth++; out += token + line(); }
    else if (token === "}" || token === "]") { depth--; out += line() + token; }
    else if (token === ",") out += `,${line()}`;
    else if (token === ":") out += ": ";
    else out += token;
  }
  return out;
}

/** Sixteen bytes a line: offset, hexadecimal, text. */
export function hexDump(data, limit = 4096) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, limit); at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return lines.join("\n");
}

/** Text for one line of a table; controls and marks that turn the direction of text are shown as such. */
export function oneLine(text, limit = 240) {
  return text.slice(0, limit).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+/g, "·");
}
