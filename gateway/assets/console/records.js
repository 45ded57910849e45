// @ts-check
// Records of a topic: newest first, or onwards from a place, or as they arrive; one of them in a drawer. All of what is
// shown is in the address, so that a link leads a colleague to the same records.
import { useEffect, useRef, useState } from "preact/hooks";
import { Missing } from "./action.js";
import { call, curlOf } from "./contract.js";
import { DASH, bytes, count, plural } from "./format.js";
import { Page, ProblemNote, State, Table, Time, Empty, go, html, link } from "./parts.js";
import { PAGE_RECORDS, conditions, readAt, shownRecord, startOf, tail } from "./reading.js";
import { Drawer, Produce } from "./record.js";
import { Replay, isDeadLetter, placeOf } from "./replay.js";
import { may } from "./rights.js";
import { topicTabs } from "./topic.js";

const HELD_ROWS = 500; // of a live tail: older ones are dropped, with a count

export default function Records({ names: [topic], query }) {
  const from = query.from ?? (query.offset !== undefined ? "offset" : "newest");
  const view = { topic, partition: query.partition ?? "", from, offset: query.offset ?? "", time: query.time ?? "", filter: query.filter ?? "" };
  const [produced, setProduced] = useState(null); // a record to produce again, or {} for a new one
  const [again, setAgain] = useState(0);
  const move = (change) => go("topics", topic, { partition: view.partition, from: query.from, offset: query.offset, time: query.time, filter: query.filter, live: query.live, ...change });
  return html`<${Page} title=${topic} kicker=${html`<a href=${link("topics")}>Topics</a>`}
      aside=${may("write", "topic", topic) && html`<button type="button" onClick=${() => setProduced({})}>Produce …</button>`}>
    ${topicTabs(topic, "Records")}
    <${Controls} ...${{ view, move, isLive: query.live === "1" }} onAgain=${() => setAgain(again + 1)} />
    ${query.live === "1" ? html`<${Live} key=${JSON.stringify(view)} view=${view} onAgain=${setProduced} />`
      : html`<${Stored} key=${JSON.stringify([view, again])} view=${view} open=${query.open} move=${move} onAgain=${setProduced} />`}
    <${Missing} right=${["write", "topic", topic]} what="Producing" />
    ${produced && html`<${Produce} topic=${topic} like=${produced} onClose=${(isDone) => { setProduced(null); if (isDone) setAgain(again + 1); }} />`}
  <//>`;
}

function Controls({ view, move, isLive, onAgain }) {
  const [form, setForm] = useState(view);
  useEffect(() => setForm(view), [JSON.stringify(view)]);
  const set = (change) => setForm({ ...form, ...change });
  const show = (event) => {
    event.preventDefault();
    const { partition, from, offset, time, filter } = form;
    if (JSON.stringify(form) === JSON.stringify(view)) onAgain();
    move({ partition, filter, from: from === "newest" || from === "offset" ? "" : from, offset: from === "offset" ? offset || "0" : "", time: from === "time" ? time : "", open: "" });
  };
  return html`<form class="filters" onSubmit=${show}>
    <label><span>From</span><select value=${form.from} disabled=${isLive} onChange=${(event) => set({ from: event.target.value })}>
      ${["newest", "oldest", "time", "offset"].map((word) => html`<option key=${word}>${word}</option>`)}</select></label>
    ${form.from === "time" && html`<label><span>Time, RFC 3339</span><input value=${form.time} required placeholder=${new Date(Date.now() - 3600000).toISOString().slice(0, 19) + "Z"} onInput=${(event) => set({ time: event.target.value })} /></label>`}
    ${form.from === "offset" && html`<label class="short"><span>Offset</span><input inputMode="numeric" pattern="[0-9]+" value=${form.offset} onInput=${(event) => set({ offset: event.target.value })} /></label>`}
    <label class="short"><span>Partition</span><input inputMode="numeric" pattern="[0-9]*" placeholder="all" disabled=${isLive} value=${form.partition} onInput=${(event) => set({ partition: event.target.value })} /></label>
    <label class="long"><span>Filter</span><input value=${form.filter} autocomplete="off" spellcheck=${false} placeholder=${'key=42 && value/city="Rome"'} onInput=${(event) => set({ filter: event.target.value })} /></label>
    <button type="submit">Show</button>
    <button type="button" aria-pressed=${isLive} class=${isLive ? "strong" : ""} onClick=${() => move({ live: isLive ? "" : "1", open: "" })}>${isLive ? "Live: stop" : "Live"}</button>
  </form>`;
}

function columnsOf(onOpen) {
  return [
    { id: "offset", head: "Partition:offset", isNumber: true, class: "data", cell: (row) => html`<button type="button" class="open" title="Open the record" onClick=${() => onOpen(row)}>${row.partition}:${row.offset}</button>` },
    { id: "time", head: "Time", class: "data nowrap", priority: 2, cell: (row) => html`<${Time} ms=${row.timestamp} />` },
    { id: "key", head: "Key", class: "data key", cell: (row) => (row.key === null ? html`<span class="soft">none</span>` : row.key.slice(0, 80)) },
    { id: "value", head: "Value", class: "data value", cell: (row) => valueOf(row) },
    { id: "size", head: "Bytes", isNumber: true, priority: 3, cell: (row) => (row.value === null ? DASH : count(row.value.length)) },
  ];
}

function valueOf(row) {
  if (row.isDamaged) return html`<${State} kind="bad" word=${row.isDamaged} />`;
  if (row.value === null) return html`<${State} word="tombstone" />`;
  return row.line === null ? html`<${State} word=${`${bytes(row.value.length)}, ${row.schema === null ? "not text" : `schema ${row.schema}`}`} />` : row.line;
}

function Stored({ view, open, move, onAgain }) {
  const [state, setState] = useState({ records: null, next: [], problems: [], problem: null });
  const [isBusy, setBusy] = useState(false);
  const [chosen, setChosen] = useState(new Set());
  const [isReplaying, setReplaying] = useState(false);
  const control = useRef(new AbortController());
  const read = async (positions) => {
    setBusy(true);
    try {
      const signal = control.current.signal;
      const each = view.from === "newest" && !view.filter ? 1000 : PAGE_RECORDS;
      const found = await readAt(positions ?? await startOf(view.topic, view, signal), { filter: view.filter, each }, signal);
      setState((before) => ({ ...found, records: [...(positions ? before.records : []), ...found.records], problem: null }));
    } catch (problem) {
      if (problem.name !== "AbortError") setState((before) => ({ ...before, problem }));
      else return;
    }
    setBusy(false);
  };
  useEffect(() => { read(null); return () => control.current.abort(); }, []);
  const isNewest = view.from === "newest";
  const newestFirst = (a, b) => b.timestamp - a.timestamp || b.partition - a.partition || b.offset - a.offset;
  const rows = state.records && (isNewest ? [...state.records].sort(newestFirst).slice(0, view.filter ? 1000 : PAGE_RECORDS) : state.records);
  const left = state.next.reduce((sum, position) => sum + Math.max(0, position.end - position.offset), 0);
  const onOpen = (row) => move({ open: placeOf(row) });
  const letters = rows?.filter(isDeadLetter) ?? [], picked = letters.filter((row) => chosen.has(placeOf(row))).sort((a, b) => a.partition - b.partition || a.offset - b.offset);
  const pick = (places, isOn) => setChosen((before) => new Set([...before].filter((place) => !places.includes(place)).concat(isOn ? places : [])));
  const box = (label, places) => html`<input type="checkbox" aria-label=${label} checked=${places.every((place) => chosen.has(place))} onChange=${(event) => pick(places, event.target.checked)} />`;
  const columns = [...columnsOf(onOpen), ...(letters.length ? [{ id: "pick", head: box("Choose all dead letters", letters.map(placeOf)), class: "pick", cell: (row) => isDeadLetter(row) && box(`Choose ${placeOf(row)}`, [placeOf(row)]) }] : [])];
  return html`<${ProblemNote} problem=${state.problem} />
    ${state.problems.map((problem) => html`<${ProblemNote} problem=${{ document: problem }} />`)}
    ${!rows && !state.problem && html`<p class="loading" role="status">Reading …</p>`}
    ${rows && html`<${Table} caption="Records" columns=${columns} rows=${rows} keyOf=${placeOf}
      empty=${view.filter ? `Nothing matches ${conditions(view.filter).join(" and ")} so far.` : html`<${Empty} title="No records here" curl=${curlOf("produce", { names: { topic: view.topic }, body: { records: [{ value: { hello: "world" } }] } })}>Records appear as soon as a producer appends them.<//>`} />
      <p class="pager"><span role="status">${plural(rows.length, "record")}${view.filter ? `; ${left ? `${count(left)} offsets not searched yet` : isNewest ? "the last 10,000 of each partition are searched" : "all are searched"}` : ""}</span>
        ${(!isNewest || view.filter) && left > 0 && html`<button type="button" disabled=${isBusy} onClick=${() => read(state.next)}>${view.filter ? "Search on" : `Next ${PAGE_RECORDS}`}</button>`}
        ${letters.length > 0 && html`<button type="button" disabled=${!picked.length} onClick=${() => setReplaying(true)}>Replay ${picked.length || "chosen"} …</button>`}</p>`}
    ${isReplaying && html`<${Replay} topic=${view.topic} rows=${picked} onClose=${() => setReplaying(false)} />`}
    ${open && html`<${Opened} view=${view} open=${open} rows=${rows} onClose=${() => move({ open: "" })} onAgain=${onAgain} />`}`;
}

/** The record of a link: of the rows if it is there, else read alone. */
function Opened({ view, open, rows, onClose, onAgain }) {
  const [partition, offset] = open.split(":").map(Number);
  const [record, setRecord] = useState(rows?.find((row) => row.partition === partition && row.offset === offset) ?? null);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    const control = new AbortController();
    const shown = rows?.find((row) => row.partition === partition && row.offset === offset);
    if (shown) { setRecord(shown); return undefined; }
    call("fetch", { names: { topic: view.topic, partition }, query: { offset, max_records: 1, value: "base64" }, signal: control.signal }).then(
      (answer) => (answer.records[0]?.offset === offset ? setRecord(shownRecord(answer.records[0], partition)) : setProblem({ document: { title: "No such record", detail: "It was deleted, or is a mark of a transaction.", code: "console_error" } })),
      (error) => error.name === "AbortError" || setProblem(error));
    return () => control.abort();
  }, [open]);
  return html`<${Drawer} ...${{ topic: view.topic, partition, offset, record, problem, onClose, onAgain }} />`;
}

/** The newest rows of a stream. It is closed while the tab is hidden, and goes on where it was. */
function Live({ view, onAgain }) {
  const [rows, setRows] = useState([]);
  const [isPaused, setPaused] = useState(false);
  const [state, setState] = useState({ word: "connecting", problem: null });
  const [opened, setOpened] = useState(null);
  const buffer = useRef({ rows: [], all: 0, dropped: 0, resume: null });
  const paused = useRef(false);
  paused.current = isPaused || opened !== null;
  useEffect(() => {
    let control = null, timer, isOver = false;
    const follow = async () => {
      if (document.hidden || isOver) return;
      control = new AbortController();
      try {
        setState({ word: "live", problem: null });
        await tail(view.topic, { filter: view.filter, resume: buffer.current.resume }, (data, fields) => {
          if (fields.id) buffer.current.resume = fields.id;
          if (fields.event === "problem") { setState({ word: "ended", problem: { document: data } }); return; }
          if (fields.event) return;
          const held = buffer.current;
          held.rows.unshift(shownRecord(data, data.partition));
          held.all++;
          if (held.rows.length > HELD_ROWS) held.dropped += held.rows.splice(HELD_ROWS).length;
        }, control.signal);
        if (!isOver) { setState((before) => (before.problem ? before : { word: "connecting", problem: null })); timer = setTimeout(follow, 2000); }
      } catch (problem) {
        if (problem.name === "AbortError" || isOver) return;
        setState({ word: "ended", problem });
        if (problem.document?.retryable ?? true) timer = setTimeout(follow, 5000 + 5000 * Math.random());
      }
    };
    const draw = setInterval(() => { if (!paused.current && !document.hidden) setRows([...buffer.current.rows]); }, 500);
    const onShow = () => { clearTimeout(timer); control?.abort(); if (document.hidden) setState({ word: "hidden", problem: null }); else follow(); };
    document.addEventListener("visibilitychange", onShow);
    follow();
    return () => { isOver = true; clearTimeout(timer); clearInterval(draw); control?.abort(); document.removeEventListener("visibilitychange", onShow); };
  }, []);
  return html`<div class="live"><${State} kind=${state.word === "live" ? "good" : "doubt"} word=${isPaused ? "paused" : state.word} />
      <button type="button" aria-pressed=${isPaused} onClick=${() => { setPaused(!isPaused); setRows([...buffer.current.rows]); }}>${isPaused ? "Go on" : "Pause"}</button>
      <span class="soft">${plural(buffer.current.all, "record")} since the stream began${buffer.current.dropped ? `, of which the last ${HELD_ROWS} are held` : ""}</span></div>
    <${ProblemNote} problem=${state.problem} />
    <${Table} caption="Records as they arrive" columns=${columnsOf(setOpened)} rows=${rows.slice(0, 200)} keyOf=${placeOf} empty="Waiting for the next record." />
    ${opened && html`<${Drawer} ...${{ topic: view.topic, partition: opened.partition, offset: opened.offset, record: opened, problem: null, onClose: () => setOpened(null), onAgain }} />`}`;
}
