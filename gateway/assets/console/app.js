// @ts-check
// The shell: heading, navigation, search, token and time zone, and the router of hash addresses. A page is a module of
// its own, loaded when it is first shown.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, session } from "./contract.js";
import { zone } from "./format.js";
import { Dialog, ProblemNote, Unknown, go, html, link } from "./parts.js";
import { currentMe, loadMe } from "./rights.js";

const SECTIONS = [
  ["overview", "Overview"], ["topics", "Topics"], ["groups", "Groups"], ["push", "Push"], ["ingestion", "Ingestion"], ["cluster", "Cluster"],
  ["tenants", "Tenants"], ["access", "Access"], ["audit", "Audit"], ["settings", "Settings"],
];
// The module of each page by the number of names behind it. A longer address, or one that is not here, names nothing.
const PAGES = {
  overview: [() => import("./overview.js")],
  topics: [() => import("./topics.js"), () => import("./records.js"), () => import("./topic.js")],
  groups: [() => import("./groups.js"), () => import("./group.js")],
  push: [() => import("./push.js"), () => import("./push.js")],
  ingestion: [() => import("./jobs.js"), () => import("./jobs.js")],
  cluster: [() => import("./cluster.js")],
  tenants: [() => import("./tenants.js"), () => import("./tenants.js")],
  access: [() => import("./access.js")],
  audit: [() => import("./audit.js")],
  settings: [() => import("./settings.js")],
  runbook: [() => import("./runbook.js"), () => import("./runbook.js")],
};

/** The page, names and query of a hash. A hash that cannot be decoded is no page. */
export function parseHash(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  try {
    const [page, ...names] = path.split("/").filter(Boolean).map(decodeURIComponent);
    return { page: page ?? "overview", names, query: Object.fromEntries(new URLSearchParams(query)) };
  } catch { return { page: "", names: [], query: {} }; }
}

function App() {
  const [route, setRoute] = useState(parseHash(location.hash));
  const [view, setView] = useState({ page: null, View: null, problem: null });
  const [, refresh] = useState(0);
  const [isAsking, setAsking] = useState(false);
  const redraw = () => refresh((number) => number + 1);
  useEffect(() => {
    const onHash = () => setRoute(parseHash(location.hash));
    const onKey = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName) || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      document.getElementById("search").focus();
    };
    const learn = () => { loadMe().then(redraw); };
    addEventListener("hashchange", onHash);
    addEventListener("keydown", onKey);
    const stop = session.listen(() => { session.need ? setAsking(true) : learn(); redraw(); });
    learn();
    return () => { removeEventListener("hashchange", onHash); removeEventListener("keydown", onKey); stop(); };
  }, []);
  const key = [route.page, route.names.length, route.names[1] ?? ""].join("/");
  useEffect(() => {
    let isOver = false;
    const load = Object.hasOwn(PAGES, route.page) && PAGES[route.page][route.names.length];
    if (!load) { setView({ key, View: Unknown, problem: null }); return undefined; }
    load().then(
      (module) => isOver || setView({ key, View: module.default, problem: null }),
      () => isOver || setView({ key, View: null, problem: new Error("The page cannot be loaded. The node may have been upgraded: load the console again.") }),
    );
    return () => { isOver = true; };
  }, [key]);
  useEffect(() => document.querySelector(".sections [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [route.page]);
  const { View } = view;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("h1")?.focus(); }}>Skip to the contents</a>
    <${Header} page=${route.page} onToken=${() => setAsking(true)} onZone=${redraw} />
    ${view.problem ? html`<main id="main"><h1 tabIndex="-1">Penstock</h1><${ProblemNote} problem=${view.problem} /></main>` : null}
    ${View && view.key === key ? html`<${View} key=${`${key}|${route.names[0] ?? ""}`} names=${route.names} query=${route.query} />` : view.problem ? null : html`<main id="main"><h1 tabIndex="-1" class="unseen">Penstock</h1></main>`}
    ${isAsking && html`<${TokenDialog} onClose=${() => setAsking(false)} />`}`;
}

function Header({ page, onToken, onZone }) {
  const [query, setQuery] = useState("");
  const search = (event) => {
    event.preventDefault();
    go("topics", { prefix: query.trim() });
    setQuery("");
  };
  const me = currentMe();
  return html`<header class="bar">
    <a class="brand" href=${link("overview")} aria-label="Penstock, overview"><svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><path class="gate" d="M13 3h6v12h-6z" /><path class="water" d="M2 17h28v4H2zM2 24h28v4H2z" /></svg><span>Penstock</span></a>
    <span class="where" title="The node that this page asks">${document.body.dataset.context}</span>
    <form role="search" class="search" onSubmit=${search}><label class="unseen" for="search">Find topics by the beginning of their name</label>
      <input id="search" type="search" placeholder="Find a topic  /" autocomplete="off" spellcheck=${false} value=${query} onInput=${(event) => setQuery(event.target.value)}
        onKeyDown=${(event) => event.key === "Escape" && event.target.blur()} /></form>
    <div class="tools">
      <button type="button" class="quiet" aria-pressed=${zone.isLocal} title="Show times in UTC or in your zone" onClick=${() => { zone.set(!zone.isLocal); onZone(); }}>${zone.isLocal ? "Local" : "UTC"}</button>
      <button type="button" class="quiet" onClick=${onToken}>${session.token ? (me?.principal ?? "Token") : "Token"}</button>
      <a class="quiet" href="docs">API</a>
    </div>
  </header>
  <nav class="sections" aria-label="Sections"><ul>${SECTIONS.map(([id, name]) => html`<li key=${id}><a href=${link(id)} aria-current=${page === id ? "page" : undefined}>${name}</a></li>`)}</ul></nav>`;
}

function TokenDialog({ onClose }) {
  const box = useRef(null);
  const [text, setText] = useState("");
  const [problem, setProblem] = useState(session.need ? { document: session.need } : null);
  useEffect(() => box.current?.focus(), []);
  const use = async (event) => {
    event.preventDefault();
    session.set(text);
    try {
      await call("describe_cluster");
      onClose();
    } catch (error) { if (error.status === 401) setProblem(error); else onClose(); }
  };
  return html`<${Dialog} title="Token" onClose=${onClose}>
    <form onSubmit=${use}>
      <p>It goes into the header Authorization of each call, is held by this tab alone, and is in no address, cookie or log.</p>
      <label class="field"><span>Token</span><input ref=${box} type="password" autocomplete="off" spellcheck=${false} required value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <${ProblemNote} problem=${problem} />
      <div class="buttons">${session.token && html`<button type="button" onClick=${() => { session.set(""); onClose(); }}>Forget the token</button>`}
        <button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="strong">Use</button></div>
    </form><//>`;
}

document.body.dataset.context = location.host;
const root = document.createElement("div");
root.id = "app";
document.body.append(root);
render(html`<${App} />`, root);
