// @ts-check
// The calls of the console: each is an operation of openapi/gateway.yaml under its operation id. Nothing else is asked
// of the node; a test looks each up in the contract. Values of records never come through here as numbers: those that
// a double cannot hold stay text.

export const CALLS = {
  describe_me: "GET /v1/me",
  describe_overview: "GET /v1/overview",
  describe_settings: "GET /v1/settings",
  read_history: "GET /v1/history",
  describe_cluster: "GET /v1/cluster",
  list_reassignments: "GET /v1/cluster/reassignments",
  reassign: "POST /v1/cluster/reassignments",
  cancel_reassignment: "DELETE /v1/cluster/reassignments/{topic}/{partition}",
  drain_node: "POST /v1/cluster/nodes/{node_id}/drain",
  balance: "POST /v1/cluster/balance",
  list_topics: "GET /v1/topics",
  create_topic: "PUT /v1/topics/{topic}",
  describe_topic: "GET /v1/topics/{topic}",
  alter_topic: "PATCH /v1/topics/{topic}",
  delete_topic: "DELETE /v1/topics/{topic}",
  roll_topic: "POST /v1/topics/{topic}/roll",
  tier_status: "GET /v1/topics/{topic}/tier",
  tail_topic: "GET /v1/topics/{topic}/records",
  produce: "POST /v1/topics/{topic}/records",
  produce_to_partition: "POST /v1/topics/{topic}/partitions/{partition}/records",
  fetch: "GET /v1/topics/{topic}/partitions/{partition}/records",
  fetch_many: "POST /v1/fetch",
  find_offsets: "GET /v1/topics/{topic}/partitions/{partition}/offsets",
  delete_records: "DELETE /v1/topics/{topic}/partitions/{partition}/records",
  list_groups: "GET /v1/groups",
  describe_group: "GET /v1/groups/{group}",
  explain_group: "GET /v1/groups/{group}/explanation",
  reset_group: "POST /v1/groups/{group}/reset",
  delete_group: "DELETE /v1/groups/{group}",
  list_subscriptions: "GET /v1/subscriptions",
  describe_subscription: "GET /v1/subscriptions/{subscription}",
  pause_subscription: "POST /v1/subscriptions/{subscription}/pause",
  resume_subscription: "POST /v1/subscriptions/{subscription}/resume",
  replay_subscription: "POST /v1/subscriptions/{subscription}/replay",
  delete_subscription: "DELETE /v1/subscriptions/{subscription}",
  read_audit: "GET /v1/cluster/nodes/{node_id}/audit",
  list_jobs: "GET /v1/cluster/jobs",
  list_tenants: "GET /v1/tenants",
  describe_tenant: "GET /v1/tenants/{tenant}",
  describe_usage: "GET /v1/tenants/{tenant}/usage",
  check_access: "POST /v1/access/check",
  list_rules: "GET /v1/access/rules",
  list_quotas: "GET /v1/access/quotas",
};

/** A problem document of the node, or what stands for it when there is no answer. */
export class Problem extends Error {
  constructor(document) {
    super(document.detail || document.title);
    this.document = document;
    this.status = document.status;
    this.code = document.code;
  }
}

const TOKEN = "penstock-token";
let token = sessionStorage.getItem(TOKEN) ?? "";
const listeners = new Set();

export const session = {
  get token() { return token; },
  /** Keeps the token for this tab alone; an empty one forgets it. */
  set(value) {
    token = value.trim();
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
    this.need = null;
    listeners.forEach((listen) => listen());
  },
  need: null, // the problem document of the last 401
  listen(listener) { listeners.add(listener); return () => listeners.delete(listener); },
};

/** The address of a call, relative to the page, so that it works behind a prefix. */
export function pathOf(name, names = {}, query = {}) {
  const [, path] = CALLS[name].split(" ");
  const filled = path.replace(/\{(\w+)\}/g, (_, key) => encodeURIComponent(names[key]).replace(/^\.{1,2}$/, (dots) => dots.replaceAll(".", "%2E")));
  const pairs = Object.entries(query).flatMap(([key, value]) => [value].flat().map((item) => [key, item]))
    .filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = pairs.map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`).join("&");
  return filled.slice(1) + (text ? `?${text}` : "");
}

const jsonOf = (body) => (body === undefined ? undefined : JSON.stringify(body));

/** The same call for a shell. The token is a variable, and never in the text. */
export function curlOf(name, { names = {}, query = {}, body = undefined, text = jsonOf(body) } = {}) {
  const [method] = CALLS[name].split(" ");
  const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const parts = ["curl -sS"];
  if (method !== "GET") parts.push(`-X ${method}`);
  parts.push(quote(new URL(pathOf(name, names, query), document.baseURI).href.split("#")[0]));
  if (token) parts.push('-H "Authorization: Bearer $PENSTOCK_TOKEN"');
  if (text !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${quote(text)}`);
  return parts.join(" ");
}

/** Sends a call. Returns its JSON, or null without a body. `text` is a body that is JSON already. Throws Problem. */
export async function call(name, request = {}) {
  const answer = await (await send(name, request)).text();
  return answer ? parseExact(answer) : null;
}

/** Sends a call and returns the answer whose body is still to be read. Throws Problem. */
export async function send(name, { names = {}, query = {}, body = undefined, text = jsonOf(body), accept = "application/json", signal = undefined, headers: more = {} } = {}) {
  const [method] = CALLS[name].split(" ");
  const headers = new Headers({ Accept: accept, ...more });
  if (token) headers.set("Authorization", `Bearer ${token}`);
  if (text !== undefined) headers.set("Content-Type", "application/json");
  let response;
  try {
    response = await fetch(pathOf(name, names, query), {
      method, headers, signal, body: text, credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ title: "The node does not answer", detail: String(error.message), code: "unreachable", status: 0, retryable: true });
  }
  if (response.ok) return response;
  throw await problemOf(response);
}

async function problemOf(response) {
  const text = await response.text();
  let document;
  try { document = parseExact(text); } catch { /* an answer of a proxy */ }
  if (!document?.code) document = { title: `Answer ${response.status} without a problem document`, detail: text.slice(0, 300), status: response.status, code: "foreign_answer" };
  if (response.status === 401) {
    session.need = document;
    listeners.forEach((listen) => listen());
  }
  if (document.code === "forbidden" && /origin/i.test(document.detail)) {
    document.hint = "Behind a proxy with TLS the node must know its address: set advertised_url.";
  }
  return new Problem(document);
}

/** Parses JSON; an integer that a double cannot hold stays the text that was sent. */
export function parseExact(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && Number.isInteger(value) && context?.source ? context.source : value);
}
