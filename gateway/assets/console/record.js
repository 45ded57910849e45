// @ts-check
// One record in a drawer, as JSON, text or bytes, and the form that produces one.
import { useEffect, useState } from "preact/hooks";
import { call, curlOf } from "./contract.js";
import { ago, bytes, hexDump, indentJson } from "./format.js";
import { Copy, Curl, Dialog, Facts, ProblemNote, Time, html, link } from "./parts.js";
import { may } from "./rights.js";

const SHOWN_BYTES = 64 * 1024;

export function Drawer({ topic, partition, offset, record: stored, problem, onClose, onAgain }) {
  const [text, setText] = useState(null), record = stored && { ...stored, text: stored.text ?? text ?? null };
  useEffect(() => {
    if (stored?.schema && stored.text === null) call("fetch", { names: { topic, partition }, query: { offset, max_records: 1, value: "schema" } }).then((answer) => setText(JSON.stringify(answer.records[0].value)), () => {});
  }, [stored]);
  const isJson = record?.text !== null && record?.text !== undefined && record.text.length <= SHOWN_BYTES * 16 && indentJson(record.text) !== null;
  const [form, setForm] = useState(null);
  const shown = form ?? (isJson ? "JSON" : record?.text === null ? (record.schema === null ? "Bytes" : "Base64") : "Text");
  const address = new URL(link("topics", topic, { partition, offset, open: `${partition}:${offset}` }), location.href).href;
  return html`<${Dialog} title=${`${topic} ${partition}:${offset}`} isWide onClose=${onClose}>
    <${ProblemNote} problem=${problem} />
    ${record && html`<div class="record">
      <${Facts} items=${[["Time", html`<${Time} ms=${record.timestamp} />`], ["Age", ago(record.timestamp)], ["Key", record.key === null ? "none" : html`<code>${record.key}</code>`], ["Size", record.value === null ? "tombstone" : bytes(record.value.length)], record.schema !== null && ["Schema", record.schema]]} />
      ${Object.keys(record.headers).length > 0 && html`<table class="headers"><caption>Headers</caption><tbody>${Object.entries(record.headers).flatMap(([name, value]) => [value].flat().map((item, place) => html`<tr key=${name + place}>
        <th scope="row"><code>${name}</code></th><td><code>${item === null ? "null" : typeof item === "object" ? `base64 ${item.base64}` : item}</code></td></tr>`))}</tbody></table>`}
      ${record.value !== null && html`<div class="forms" role="group" aria-label="Form of the value">${["JSON", "Text", "Base64", "Bytes"].filter((word) => (word === "JSON" ? isJson : word === "Text" ? record.text !== null : word === "Bytes" || record.text === null || record.schema !== null))
        .map((word) => html`<button type="button" key=${word} class="quiet" aria-pressed=${shown === word} onClick=${() => setForm(word)}>${word}</button>`)}
        <${Copy} text=${record.text ?? hexDump(record.value, Infinity)} label="Copy value" /></div>
      ${record.schema !== null && record.text === null && html`<p class="soft">The node has no registry that decodes it.</p>`}
      <pre class="value" tabIndex="0" aria-label="Value">${shownValue(record, shown)}</pre>`}
      <div class="buttons">${may("write", "topic", topic) && html`<button type="button" onClick=${() => { onClose(); onAgain(record); }}>Produce like this …</button>`}
        <${Copy} text=${address} label="Copy link" /></div>
      <${Curl} text=${curlOf("fetch", { names: { topic, partition }, query: { offset, max_records: 1 } })} />
    </div>`}
    ${!record && !problem && html`<p role="status">Reading …</p>`}
  <//>`;
}

/** Text as it was stored; what is longer than 64 KiB is cut, and says so. */
function shownValue(record, form) {
  if (form === "Base64") return record.raw.value_base64.slice(0, SHOWN_BYTES);
  if (form === "Bytes" || record.text === null) return hexDump(record.value) + (record.value.length > 4096 ? `\n… ${bytes(record.value.length - 4096)} more` : "");
  const text = form === "JSON" ? indentJson(record.text) ?? record.text : record.text;
  return text.length > SHOWN_BYTES ? `${text.slice(0, SHOWN_BYTES)}\n… ${bytes(text.length - SHOWN_BYTES)} more: copy the value, or fetch it` : text;
}

/** Produces one record. The body is written as text, so that numbers are sent as they were typed. */
export function Produce({ topic, like, onClose }) {
  const isText = like.text !== null && like.text !== undefined;
  const [form, setForm] = useState({ key: like.key ?? "", value: isText ? like.text : "", partition: like.partition ?? "", headers: like.headers ? JSON.stringify(like.headers) : "{}" });
  const [problem, setProblem] = useState(null);
  const [answer, setAnswer] = useState(null);
  const set = (id) => (event) => setForm({ ...form, [id]: event.target.value });
  let mistake = null, record = {};
  try {
    const headers = JSON.parse(form.headers || "{}");
    record = { ...(form.key === "" ? {} : { key: form.key }), ...(isJson(form.value) ? {} : { value_base64: base64(form.value) }), ...(Object.keys(headers).length ? { headers } : {}) };
  } catch (error) { mistake = `Headers are not a JSON object: ${error.message}`; }
  const head = JSON.stringify(record).slice(1, -1);
  const text = `{"records":[{${[head, isJson(form.value) ? `"value":${form.value.trim()}` : ""].filter(Boolean).join(",")}}]}`;
  const request = { names: { topic }, query: { partition: form.partition }, text };
  const send = async (event) => {
    event.preventDefault();
    try { setAnswer(await call("produce", request)); setProblem(null); } catch (error) { setProblem(error); }
  };
  return html`<${Dialog} title=${`Produce to ${topic}`} onClose=${() => onClose(answer !== null)}>
    <form onSubmit=${send}>
      <p class="context">on <b>${document.body.dataset.context}</b></p>
      <label class="field"><span>Key</span><input value=${form.key} onInput=${set("key")} autocomplete="off" spellcheck=${false} /><small>Empty: no key.</small></label>
      <label class="field"><span>Value</span><textarea rows="8" spellcheck=${false} value=${form.value} onInput=${set("value")}></textarea><small>${isJson(form.value) ? "JSON, stored as typed" : "Not JSON: stored as text"}</small></label>
      <label class="field"><span>Headers, a JSON object</span><input value=${form.headers} onInput=${set("headers")} spellcheck=${false} /></label>
      <label class="field"><span>Partition</span><input inputMode="numeric" pattern="[0-9]*" value=${form.partition} placeholder="by key" onInput=${set("partition")} /></label>
      ${mistake && html`<p class="mistake" role="status">${mistake}</p>`}
      <p class="effect">Appends one record of ${bytes(new TextEncoder().encode(form.value).length)} to ${topic}. It cannot be taken back.</p>
      <${ProblemNote} problem=${problem} />
      ${answer && html`<p role="status">Stored at <a href=${link("topics", topic, { partition: answer.results[0].partition, offset: answer.results[0].base_offset, open: `${answer.results[0].partition}:${answer.results[0].base_offset}` })} onClick=${() => onClose(true)}>${answer.results[0].partition}:${answer.results[0].base_offset}</a></p>`}
      <div class="buttons"><button type="button" onClick=${() => onClose(answer !== null)}>${answer ? "Close" : "Cancel"}</button><button type="submit" class="strong" disabled=${mistake !== null}>Produce</button></div>
      ${!mistake && html`<${Curl} text=${curlOf("produce", request)} />`}
    </form><//>`;
}

function isJson(text) {
  try { JSON.parse(text); return true; } catch { return false; }
}

function base64(text) { return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("")); }
