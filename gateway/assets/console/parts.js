// @ts-check
// The parts that pages are made of: tables, times, states, problems, small trends. They ask nothing of the node.
import { h } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { DASH, ago, count, time } from "./format.js";
import { INTERVAL_MS } from "./poll.js";

export const html = htm.bind(h);

/** The hash of a page. Each name is encoded once here and decoded once by the router. */
export function link(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  const text = pairs.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(...parts) { location.hash = link(...parts); }

export function Time({ ms }) {
  return html`<time dateTime=${ms ? new Date(Number(ms)).toISOString() : ""} title=${ago(ms)}>${time(ms)}</time>`;
}

/** A state by word and shape; the colour only repeats it. */
export function State({ word, kind = "plain" }) {
  return html`<span class="state ${kind}">${word}</span>`;
}

/** Nodes that have not answered, so that what is shown is a part. */
export function Silent({ nodes }) {
  return nodes?.length > 0 && html`<p role="status"><${State} kind="bad" word="no answer" /> of node ${nodes.join(", ")}: its part is not in what is shown.</p>`;
}

export function ProblemNote({ problem, at = 0 }) {
  if (!problem) return null;
  const document = problem.document ?? { title: "The console failed", detail: String(problem), code: "console_error" };
  const age = at ? ` What is shown is of ${ago(at)}.` : "";
  return html`<div class="problem" role="alert">
    <p><b>${document.title}</b>${document.status ? html` <code>${document.status} ${document.code}</code>` : null}</p>
    <p>${document.detail}${age}</p>
    ${document.hint && html`<p>${document.hint}</p>`}
    ${document.request_id && html`<details><summary>Problem document</summary><pre tabIndex="0">${JSON.stringify(document, null, 2)}</pre>
      ${document.type && html`<p><a href=${document.type.replace(/^\//, "")}>What to do about ${document.code}</a></p>`}</details>`}
  </div>`;
}

/** The heading of a page, its lead, and what was wrong with its last load. */
export function Page({ title, kicker = null, aside = null, poll = null, children }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} · ${document.body.dataset.context ?? "Penstock"}`;
    if (window.hasMoved) heading.current.focus({ preventScroll: true });
    window.hasMoved = true;
  }, [title]);
  return html`<main id="main">
    <div class="title">
      <div>${kicker && html`<p class="kicker">${kicker}</p>`}<h1 tabIndex="-1" ref=${heading}>${title}</h1></div>
      <div class="aside">${aside}${poll && html`<${Freshness} poll=${poll} />`}</div>
    </div>
    ${poll && html`<${ProblemNote} problem=${poll.problem} at=${poll.at} />`}
    ${poll && !poll.data && !poll.problem ? html`<p class="loading" role="status">Loading …</p>` : children}
  </main>`;
}

export function Unknown() {
  return html`<${Page} title="No such page"><p><code>${location.hash}</code> names nothing here. <a href=${link("overview")}>Go to the overview</a>.</p><//>`;
}

function Freshness({ poll }) {
  return html`<span class="fresh">${poll.at ? html`<${Time} ms=${poll.at} />` : DASH}${poll.isRepeated && html`<span class="wide"> · every ${INTERVAL_MS / 1000} s</span>`}
    <button type="button" class="quiet" onClick=${poll.reload} aria-label="Refresh now" title="Refresh now">↻</button></span>`;
}

/**
 * A table. A column: {id, head, cell(row), isNumber, priority, sort}. Columns of a lower priority leave first when the
 * page gets narrow. `sort` is {by, onSort}: the caller sorts, or the node does.
 */
export function Table({ caption, columns, rows, keyOf, sort = null, empty = null, rowClass = null }) {
  if (rows.length === 0) return html`<div class="empty">${empty ?? "Nothing here."}</div>`;
  const className = (column) => `${column.isNumber ? "number" : ""} p${column.priority ?? 1} ${column.class ?? ""}`;
  return html`<div class="scroller" tabIndex="0" role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map((column) => html`<th scope="col" key=${column.id} class=${className(column)}
      aria-sort=${sort && column.sort ? (sort.by === column.id ? "ascending" : sort.by === `-${column.id}` ? "descending" : "none") : undefined}>
      ${sort && column.sort ? html`<button type="button" onClick=${() => sort.onSort(nextSort(sort.by, column))}>${column.head}<span aria-hidden="true" class="arrow">${sort.by === column.id ? "↑" : sort.by === `-${column.id}` ? "↓" : ""}</span></button>` : column.head}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)} class=${rowClass?.(row) ?? ""}>${columns.map((column, place) => place === 0
      ? html`<th scope="row" key=${column.id} class=${className(column)}>${column.cell(row)}</th>`
      : html`<td key=${column.id} class=${className(column)}>${column.cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** A column of one member of a row, and one of numbers. */
export const column = (id, head, more = {}, show = (value) => value ?? "") => ({ id, head, sort: (row) => row[id], cell: (row) => show(row[id]), ...more });
export const number = (id, head, show = count, priority = 1) => column(id, head, { isNumber: true, priority }, show);

function nextSort(by, column) {
  if (column.isNumber) return by === `-${column.id}` ? column.id : `-${column.id}`;
  return by === column.id ? `-${column.id}` : column.id;
}

/** Sorts rows by a column's `sort`, which takes a row and returns a number or a text; unknown comes last. */
export function sorted(rows, columns, by) {
  const isDown = by.startsWith("-");
  const column = columns.find((candidate) => candidate.id === by.replace(/^-/, ""));
  if (!column?.sort) return rows;
  const rank = (row) => column.sort(row);
  return [...rows].sort((a, b) => {
    const [x, y] = [rank(a), rank(b)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * (isDown ? -1 : 1);
  });
}

/** Numbers of a thing in one line, each under its name. */
export function Facts({ items }) {
  return html`<dl class="facts">${items.filter(Boolean).map(([name, value, kind]) => html`<div key=${name} class=${kind ?? ""}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A trend by hand in SVG; `points` are numbers, null is a gap. */
export function Spark({ points, label }) {
  const seen = points.filter((point) => point !== null && point !== undefined);
  if (seen.length < 2) return DASH;
  const high = Math.max(...seen), low = Math.min(0, ...seen), span = high - low || 1;
  const step = 96 / (points.length - 1);
  let path = "", isDrawn = false;
  points.forEach((point, place) => {
    if (point === null || point === undefined) { isDrawn = false; return; }
    path += `${isDrawn ? "L" : "M"}${(place * step).toFixed(1)} ${(21 - ((point - low) / span) * 19).toFixed(1)}`;
    isDrawn = true;
  });
  return html`<svg class="spark" viewBox="0 0 96 22" role="img" aria-label=${label} preserveAspectRatio="none"><path d=${path} /></svg>`;
}

export function Bar({ share, label }) {
  const value = Math.max(0, Math.min(1, share || 0));
  return html`<svg class="bar ${value > 0.9 ? "bad" : value > 0.75 ? "doubt" : ""}" viewBox="0 0 100 6" role="img" aria-label=${label} preserveAspectRatio="none">
    <rect class="whole" width="100" height="6" rx="2" /><rect class="part" width=${value * 100} height="6" rx="2" /></svg>`;
}

export function Copy({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return undefined;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [isDone]);
  return html`<button type="button" class="quiet" onClick=${async (event) => setDone(await copyText(text, event.target))}>${isDone ? "Copied" : label}</button>`;
}

/** Browsers have no clipboard on pages without TLS, except on localhost: the old way works there. */
async function copyText(text, near) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = document.createElement("textarea");
    box.value = text;
    (near.closest("dialog") ?? document.body).append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
    near.focus();
  }
  return true;
}

export function Curl({ text }) {
  return html`<div class="curl"><pre tabIndex="0" aria-label="The same call with curl">${text}</pre><${Copy} text=${text} /></div>`;
}

/** What a page says that has nothing to show: what it is for, and the call that makes the first one. */
export function Empty({ title, children, curl = null }) {
  return html`<div class="empty"><p><b>${title}</b></p><p>${children}</p>${curl && html`<${Curl} text=${curl} />`}</div>`;
}

export function Tabs({ label, tabs, chosen }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map(([name, address, note]) => html`<a key=${name} href=${address}
    aria-current=${name === chosen ? "page" : undefined}>${name}${note ? html` <span class="note">${note}</span>` : null}</a>`)}</nav>`;
}

export function Dialog({ title, onClose, children, isWide = false }) {
  const element = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${element} class=${isWide ? "wide" : ""} aria-label=${title}
    onCancel=${(event) => { event.preventDefault(); onClose(); }}>
    <header><h2>${title}</h2><button type="button" class="quiet" aria-label="Close" onClick=${onClose}>✕</button></header>
    ${children}</dialog>`;
}
