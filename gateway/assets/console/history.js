// @ts-check
// The last hour of a node, a topic or a group from GET /v1/history, with uPlot, which only pages with plots load.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./contract.js";
import { bytes, count, rate, seconds, time } from "./format.js";
import { html } from "./parts.js";

const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power); // steps of an axis of bytes
const SHOWN = {
  records_in_per_s: ["Records/s in", rate], bytes_in_per_s: ["Bytes/s in", bytes], bytes_out_per_s: ["Bytes/s out", bytes], 
  lag_records: ["Lag, records", count], lag_s: ["Lag, time", seconds], ack_p99_s: ["Ack, p99", seconds], requests_per_s: ["Requests/s", rate], group_lag_s: ["Worst group lag", seconds],
};

/** `at` is when the page has its numbers: the plots follow it once a minute. */
export function HistoryPlot({ of = {}, series, at = 0 }) {
  const [data, setData] = useState(null);
  useEffect(() => {
    const control = new AbortController();
    call("read_history", { query: { ...of, names: series.join(",") }, signal: control.signal }).then(setData, () => setData(null));
    return () => control.abort();
  }, [JSON.stringify(of), Math.floor(at / 60000)]);
  return html`<div class="plots">${(data?.series ?? []).map(({ name, values }) => html`<${Plot} key=${name} title=${SHOWN[name][0]} show=${SHOWN[name][1]} values=${values} stepMs=${data.step_ms} end=${data.end_ms} />`)}</div>`;
}

function Plot({ title, show, values, stepMs, end }) {
  const box = useRef(null);
  const seen = values.filter((value) => value !== null);
  const isLone = values.some((value, place) => value !== null && (values[place - 1] ?? values[place + 1] ?? null) === null);
  useEffect(() => {
    let plot, isOver = false;
    import("uplot").then(({ default: UPlot }) => {
      if (isOver || !box.current) return;
      const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
      const times = values.map((_, place) => (end - (values.length - 1 - place) * stepMs) / 1000);
      const clock = (s) => time(s * 1000).slice(11, 16);
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const first = values.findIndex((value) => value !== null);
      const from = Math.max(0, Math.min(first, values.length - 60)); // ten minutes at least
      plot = new UPlot({
        width: box.current.clientWidth, height: 120, legend: { show: false }, cursor: { show: false },
        axes: [{ ...axis, size: 24, space: 70, incrs: [60, 120, 300, 600, 900, 1800], values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 58, incrs: show === bytes ? BINARY : undefined, values: (_, ticks) => ticks.map(show) }],
        scales: { x: { time: false }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
        series: [{}, { stroke: colour("--accent"), fill: colour("--accent-wash"), width: 1.5, points: { show: isLone, size: 4 } }],
      }, [times.slice(from), values.slice(from)], box.current);
    });
    return () => { isOver = true; plot?.destroy(); };
  }, [values]);
  if (seen.length < 2) return html`<figure><figcaption>${title}</figcaption><p class="soft">Not enough samples yet.</p></figure>`;
  const sentence = `${title}: from ${show(Math.min(...seen))} to ${show(Math.max(...seen))}, last ${show(seen.at(-1))}`;
  return html`<figure><figcaption>${title} <span class="soft">${show(seen.at(-1))}</span></figcaption>
    <div role="img" aria-label=${sentence} ref=${box}></div>
    <details><summary>As a table</summary><div class="scroller" tabIndex="0"><table><tbody>${values.map((value, place) => ({ value, at: end - (values.length - 1 - place) * stepMs })).filter((row) => row.value !== null).reverse().filter((_, place) => place % 6 === 0)
      .map((row) => html`<tr key=${row.at}><th scope="row" class="data nowrap">${time(row.at)}</th><td class="number">${show(row.value)}</td></tr>`)}</tbody></table></div></details></figure>`;
}
