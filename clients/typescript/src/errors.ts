/** The one error of this client: a problem document of the node, or a failure on this side of it. */
import { PROBLEMS } from "./tables.js";

export interface Failure {
  code: string;
  title?: string;
  detail: string;
  status?: number;
  retryable?: boolean;
  noSideEffects?: boolean;
  requestId?: string;
  retryAfterMs?: number;
  help?: string;
  members?: Record<string, unknown>;
}

export class PenstockError extends Error {
  override readonly name = "PenstockError";
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  /** The HTTP status; 0 if no answer came. */
  readonly status: number;
  readonly retryable: boolean;
  /** The request may have been carried out, by this attempt or an earlier one. */
  readonly maybeDone: boolean;
  readonly requestId: string;
  readonly retryAfterMs: number | undefined;
  /** Where the node explains the code and what to do. */
  readonly help: string;
  /** All members of the problem document, such as `log_start` or `expected_seq`. */
  readonly members: Record<string, unknown>;

  constructor(failure: Failure, options?: ErrorOptions) {
    super(`${failure.code}: ${failure.detail}`, options);
    this.code = failure.code;
    this.title = failure.title ?? "";
    this.detail = failure.detail;
    this.status = failure.status ?? 0;
    this.retryable = failure.retryable ?? false;
    this.maybeDone = !(failure.noSideEffects ?? true);
    this.requestId = failure.requestId ?? "";
    this.retryAfterMs = failure.retryAfterMs;
    this.help = failure.help ?? "";
    this.members = failure.members ?? {};
  }

  /** Returns this error for a request of which an earlier attempt may have been carried out. */
  asMaybeDone(): PenstockError {
    return this.maybeDone ? this : new PenstockError({ ...this, noSideEffects: false }, { cause: this });
  }
}

/** True for an error of any copy of this package: two copies have two classes. */
export function isPenstockError(error: unknown): error is PenstockError {
  return error instanceof Error && error.name === "PenstockError" && "code" in error;
}

/** Returns the entries of an answer to a fetch or poll of which no partition could be read: its problem has them. */
export function partsOf(error: unknown): { partitions: unknown[] } {
  if (isPenstockError(error) && Array.isArray(error.members["partitions"])) return { partitions: error.members["partitions"] };
  throw error;
}

/** Makes the error of a problem document. What the contract promises for a code counts before what the answer says. */
export function problemError(status: number, document: unknown, where: { url: string; retryAfterMs?: number }): PenstockError {
  const members = typeof document === "object" && document !== null ? (document as Record<string, unknown>) : {};
  const code = typeof members["code"] === "string" ? members["code"] : "not_a_problem";
  const promise = Object.hasOwn(PROBLEMS, code) ? PROBLEMS[code] : undefined;
  const isProxy = code === "not_a_problem"; // a proxy in between, which may have passed the request on
  return new PenstockError({
    code,
    title: String(members["title"] ?? ""),
    detail: String(members["detail"] ?? `the answer has status ${status} and is no problem document`),
    status,
    retryable: promise ? promise[1] === 1 : isProxy ? status >= 500 || status === 429 || status === 408 : members["retryable"] === true,
    noSideEffects: promise ? promise[2] === 1 : isProxy ? status < 500 : members["no_side_effects"] === true,
    requestId: String(members["request_id"] ?? ""),
    ...(where.retryAfterMs === undefined ? {} : { retryAfterMs: where.retryAfterMs }),
    help: typeof members["type"] === "string" ? new URL(members["type"], where.url).href : "",
    members,
  });
}
