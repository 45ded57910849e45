/**
 * Sends requests with `fetch`: nodes in turn, the leader of a partition first, retries by the table of problems.
 *
 * A request that may have been carried out is sent again only if a repeat is harmless: `isRepeatable` says so.
 */
import { isPenstockError, PenstockError, problemError } from "./errors.js";

export interface ClientOptions {
  /** Addresses of nodes, such as `http://127.0.0.1:8080`. Any node takes any request. */
  url: string | readonly string[];
  /** A token, or a function that returns the present one. */
  token?: string | (() => string | Promise<string>);
  fetch?: typeof globalThis.fetch;
  /** How long a call is retried. 60 s by default; long polls get their `wait_ms` on top. */
  deadlineMs?: number;
  /** How long an attempt may take. 40 s by default: more than a node waits for replicas. */
  attemptMs?: number;
  /** Returns the `traceparent` and `tracestate` of the caller: records get them as headers if the trace is sampled. */
  traceContext?: () => TraceContext;
  onRequest?: (request: { method: string; url: string }) => void;
  onRetry?: (retry: { attempt: number; delayMs: number; error: PenstockError }) => void;
}

export type TraceContext = { traceparent?: string; tracestate?: string };

export interface CallOptions {
  signal?: AbortSignal;
  deadlineMs?: number;
  headers?: Record<string, string>;
  idempotencyKey?: string;
}

export interface Message {
  method: string;
  /** With its query. */
  path: string;
  body?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  isRepeatable: boolean;
  waitMs?: number;
}

export interface Answer {
  status: number;
  headers: Headers;
  json: unknown;
}

export const VERSION = "0.1.0";
const IS_BROWSER = String(globalThis.navigator?.userAgent).startsWith("Mozilla"); // its workers too; it has a User-Agent of its own
const BACKOFF_MS = 50;
const BACKOFF_MS_MAX = 5000;
const RETRY_AFTER_MS_MAX = 60_000; // a longer one is no load control but a mistake
const LEADERS_MAX = 10_000;

export class Transport {
  readonly deadlineMs: number;
  readonly traceContext: (() => TraceContext) | undefined;
  #urls: string[];
  #current = 0;
  #leaders = new Map<string, string>();
  #options: ClientOptions;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#urls = (typeof options.url === "string" ? [options.url] : [...options.url]).map((url) => new URL(url).href.replace(/\/+$/, ""));
    if (this.#urls.length === 0) throw new TypeError("url is empty");
    this.traceContext = options.traceContext;
    this.deadlineMs = options.deadlineMs ?? 60_000;
  }

  /** Returns the answer of a success, retrying until the deadline. Throws PenstockError, or the reason of `signal`. */
  async send(message: Message, options: CallOptions = {}): Promise<Answer> {
    const until = now() + (options.deadlineMs ?? this.deadlineMs) + (message.waitMs ?? 0);
    let isMaybeDone = false;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.attempt(message, until, options.signal);
      } catch (error) {
        if (!isPenstockError(error)) throw error;
        isMaybeDone ||= error.maybeDone;
        const delayMs = retryDelayMs(error, attempt);
        if (!mayRetry(error, message.isRepeatable) || now() + delayMs >= until) throw isMaybeDone ? error.asMaybeDone() : error;
        this.#options.onRetry?.({ attempt, delayMs, error });
        await sleep(delayMs, options.signal);
      }
    }
  }

  /** Sends once. Throws PenstockError for a problem and for a lost connection. */
  async attempt(message: Message, until: number, signal?: AbortSignal): Promise<Answer> {
    const waitMs = (this.#options.attemptMs ?? 40_000) + (message.waitMs ?? 0);
    const timeout = AbortSignal.timeout(Math.max(1, Math.ceil(Math.min(waitMs, until - now()))));
    const place = placeOf(message);
    try {
      const response = await this.open(message, signal ? AbortSignal.any([signal, timeout]) : timeout);
      const text = await response.text();
      if (text === "" && response.status !== 204) throw new TypeError("the answer was cut off"); // browsers hide it
      const json = parse(text);
      if (json !== undefined || text === "") return { status: response.status, headers: response.headers, json };
      throw new PenstockError({ code: "not_a_node", detail: `${response.url} answers with something that is not JSON`, noSideEffects: false });
    } catch (error) {
      if (isPenstockError(error)) throw error;
      this.#leave(place);
      signal?.throwIfAborted();
      const detail = timeout.aborted ? "no answer in time" : reasonOf(error);
      const failure = { code: "connection_failed", detail, retryable: true, noSideEffects: isRefused(error) };
      throw new PenstockError(failure, { cause: error });
    }
  }

  /** Sends once and returns a success, whose body is still to be read. Throws PenstockError for a problem, and what `fetch` does. */
  async open(message: Message, signal: AbortSignal): Promise<Response> {
    const place = placeOf(message);
    const isSigned = message.path.startsWith("http"); // it carries its own right, and no token
    const base = isSigned ? "" : (this.#leaders.get(place) ?? this.#urls[this.#current % this.#urls.length]!);
    const url = base + message.path;
    const headers: Record<string, string> = { ...message.headers };
    if (!IS_BROWSER) headers["User-Agent"] = `penstock-js/${VERSION}`;
    const token = typeof this.#options.token === "function" ? await this.#options.token() : this.#options.token;
    if (token && !isSigned) headers["Authorization"] = `Bearer ${token}`;
    this.#options.onRequest?.({ method: message.method, url });
    const response = await (this.#options.fetch ?? fetch)(url, {
      method: message.method,
      headers,
      redirect: "manual", // the token goes to the given hosts only
      signal,
      ...(message.body === undefined ? {} : { body: message.body }),
    });
    if (response.status >= 503) this.#leave(place);
    else this.#note(place, response.headers.get("Penstock-Leader"));
    if (response.ok) return response;
    throw problemError(response.status, parse(await response.text()), { url, ...retryAfter(response) });
  }

  /** Returns the URL of a path, for programs that have no client. */
  urlOf(path: string): string {
    return this.#urls[this.#current % this.#urls.length]! + path;
  }

  #leave(place: string): void {
    if (!this.#leaders.delete(place)) this.#current++;
  }

  /** Remembers a leader whose host is one of the given ones: the token goes to no other host. */
  #note(place: string, leader: string | null): void {
    if (!place || !leader || !URL.canParse(leader)) return;
    const { protocol, hostname } = new URL(leader);
    if (!this.#urls.some((url) => new URL(url).protocol === protocol && new URL(url).hostname === hostname)) return;
    if (this.#leaders.size >= LEADERS_MAX) this.#leaders.clear();
    this.#leaders.set(place, leader.replace(/\/+$/, ""));
  }
}

export function mayRetry(error: PenstockError, isRepeatable: boolean): boolean {
  return error.retryable && (isRepeatable || !error.maybeDone);
}

/** Full jitter; the node's Retry-After is a lower bound. */
export function retryDelayMs(error: PenstockError, attempt: number): number {
  const backoff = Math.random() * Math.min(BACKOFF_MS * 2 ** Math.min(attempt, 20), BACKOFF_MS_MAX);
  return Math.min(error.retryAfterMs ?? 0, RETRY_AFTER_MS_MAX) + backoff;
}

export function now(): number {
  return performance.now();
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Also for pages without TLS, which have no crypto.randomUUID. */
export function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The partition of a message by its path; empty for one that any node takes. */
function placeOf({ path }: Message): string {
  return path.includes("/partitions/") ? path.split("?")[0]! : "";
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function retryAfter(response: Response): { retryAfterMs?: number } {
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  return seconds >= 0 ? { retryAfterMs: seconds * 1000 } : {};
}

/** True if the connection was never made, as far as the runtime says so. */
function isRefused(error: unknown): boolean {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const code = (cause as { code?: unknown } | null)?.code;
  return code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "UND_ERR_CONNECT_TIMEOUT" || code === "ConnectionRefused";
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
