// @ts-check
// Buttons that change something, and the one dialog before each change: its effect in numbers, the name typed for what
// cannot be undone, the call for a shell, and the node's own problem document if it refuses.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, curlOf } from "./contract.js";
import { Curl, Dialog, ProblemNote, html } from "./parts.js";
import { may } from "./rights.js";

/**
 * A button with its dialog. `right` is [operation, resource, name]: without it there is no button, and `Missing` says
 * which right it takes. `effect(form)` returns lines; `preview` is a request whose answer `effect` gets as well.
 */
export function Action({ label, title = label, right, name, effect, request, typed = null, fields = null, preview = null, onDone, isBad = false }) {
  const [isOpen, setOpen] = useState(false);
  if (!may(...right)) return null;
  return html`<button type="button" class=${isBad ? "bad" : ""} onClick=${() => setOpen(true)}>${label} …</button>
    ${isOpen && html`<${Confirm} ...${{ label, title, name, effect, request, typed, fields, preview, isBad }}
      onClose=${(answer) => { setOpen(false); if (answer !== undefined) onDone?.(answer); }} />`}`;
}

function Confirm({ label, title, name, effect, request, typed, fields, preview, isBad, onClose }) {
  const [form, setForm] = useState(Object.fromEntries((fields ?? []).map((field) => [field.id, field.value ?? ""])));
  const [text, setText] = useState("");
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [plan, setPlan] = useState(preview ? undefined : null);
  const cancel = useRef(null);
  useEffect(() => { (fields ? null : cancel.current)?.focus(); }, []);
  let given, mistake = null;
  try { given = request(form); } catch (error) { mistake = error.message; }
  const planKey = preview && !mistake ? JSON.stringify(preview(form)) : null;
  useEffect(() => {
    if (planKey === null) return undefined;
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setPlan(await call(name, { ...JSON.parse(planKey), signal: control.signal }));
        setProblem(null);
      } catch (error) { if (error.name !== "AbortError") { setPlan(undefined); setProblem(error); } }
    }, 250);
    return () => { clearTimeout(timer); control.abort(); };
  }, [planKey]);
  const isReady = !mistake && !isBusy && (!typed || text === typed) && (!preview || plan !== undefined);
  const run = async (event) => {
    event.preventDefault();
    if (!isReady) return;
    setBusy(true);
    try {
      onClose((await call(name, given)) ?? true);
    } catch (error) { setProblem(error); setBusy(false); }
  };
  const lines = preview && plan === undefined ? [] : [effect(form, plan)].flat();
  return html`<${Dialog} title=${title} onClose=${() => onClose()}>
    <form onSubmit=${run}>
      <p class="context">on <b>${document.body.dataset.context}</b></p>
      ${fields?.map((field) => html`<label key=${field.id} class="field"><span>${field.label}</span><${Input} field=${field} value=${form[field.id]}
        onValue=${(value) => setForm((before) => ({ ...before, [field.id]: value }))} />${field.note && html`<small>${field.note}</small>`}</label>`)}
      ${mistake && html`<p class="mistake" role="status">${mistake}</p>`}
      ${!mistake && html`<div class="effect" role="status">${preview && plan === undefined && !problem ? html`<p>Asking for the plan …</p>` : lines.map((line) => html`<p key=${String(line)}>${line}</p>`)}</div>`}
      ${typed && html`<label class="field"><span>This cannot be undone. Type <code>${typed}</code></span><input value=${text} autocomplete="off" spellcheck=${false} onInput=${(event) => setText(event.target.value)} /></label>`}
      <${ProblemNote} problem=${problem} />
      <div class="buttons"><button type="button" ref=${cancel} onClick=${() => onClose()}>Cancel</button>
        <button type="submit" class=${isBad ? "bad strong" : "strong"} disabled=${!isReady}>${isBusy ? "Sent …" : label}</button></div>
      ${!mistake && html`<${Curl} text=${curlOf(name, given)} />`}
    </form>
  <//>`;
}

function Input({ field, value, onValue }) {
  const shared = { value, onInput: (event) => onValue(event.target.value) };
  if (field.choices) return html`<select ...${shared}>${field.choices.map((choice) => html`<option key=${choice} value=${choice}>${choice}</option>`)}</select>`;
  if (field.isLong) return html`<textarea rows="6" spellcheck=${false} ...${shared}></textarea>`;
  return html`<input autocomplete="off" spellcheck=${false} required=${field.isNeeded} placeholder=${field.example ?? ""} ...${shared} />`;
}

/** Says which right an action takes that the caller has not. */
export function Missing({ right, what }) {
  if (may(...right)) return null;
  const [operation, resource, name] = right;
  return html`<p class="missing">${what} takes <code>${operation}</code> on ${resource}${name ? html` <code>${name}</code>` : null}, which this token has not.</p>`;
}
