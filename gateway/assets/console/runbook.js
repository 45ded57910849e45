// @ts-check
// The section of the runbook about one finding, from the package: it is there when the network is not.
import { useEffect, useState } from "preact/hooks";
import { Page, html, link } from "./parts.js";

const PARTS = /(\*\*[^*]+\*\*|`[^`]+`|\[[^\]]+\]\([^)]+\))/;

export default function Runbook({ names: [code = ""] }) {
  const [sections, setSections] = useState(null);
  useEffect(() => { import("./runbook_sections.js").then((module) => setSections(module.default)); }, []);
  const key = code.replaceAll("_", ""), section = sections?.[key];
  if (!sections) return null;
  if (!code) return html`<${Page} title="Runbook"><ul class="plain">${Object.entries(sections).map(([name, [title]]) => html`<li key=${name}><a href=${link("runbook", name)}>${title}</a></li>`)}</ul><//>`;
  return html`<${Page} title=${section?.[0] ?? code} kicker=${html`<a href=${link("runbook")}>Runbook</a>`}>
    <div class="prose">${section ? section[1].split(/ (?=\*\*[A-Z])/).map((part) => html`<p key=${part}>${marked(part)}</p>`) : html`<p>The runbook has no section ${code}.</p>`}</div><//>`;
}

/** Bold words, code and links of Markdown. */
export function marked(text) {
  return text.split(PARTS).map((part) => {
    if (part.startsWith("**")) return html`<b>${part.slice(2, -2)}</b>`;
    if (part.startsWith("`")) return html`<code>${part.slice(1, -1)}</code>`;
    const found = /^\[(.+)\]\((?:.*\/)?(.+)\.md(#.*)?\)/.exec(part);
    return found ? html`<a href="docs/${found[2]}${found[3] ?? ""}">${found[1]}</a>` : part;
  });
}
