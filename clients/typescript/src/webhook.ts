/** Verifies deliveries of push subscriptions: Standard Webhooks, HMAC-SHA256 of the raw body. */
import { PenstockError } from "./errors.js";
import { fromBase64 } from "./records.js";

export interface WebhookEvent {
  /** The same for a repeat of a delivery: store it with the work to recognise repeats. */
  id: string;
  timestamp: number;
  body: Uint8Array;
}

const TOLERANCE_S = 300;

/**
 * Returns the event if one of the secrets has signed it within five minutes of `nowMs`; throws PenstockError `webhook_invalid`.
 * Give the body as it came, and during a rotation both secrets.
 */
export async function verifyWebhook(
  body: Uint8Array | string,
  headers: Headers | Record<string, string | string[] | undefined>,
  secrets: readonly string[],
  nowMs: number = Date.now(),
): Promise<WebhookEvent> {
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => headerOf(headers, name));
  if (!id || !timestamp || !signatures) throw invalid("a webhook header is missing");
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(nowMs / 1000 - Number(timestamp)) > TOLERANCE_S) {
    throw invalid("the timestamp is not within five minutes of now");
  }
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(head.length + bytes.length);
  signed.set(head);
  signed.set(bytes, head.length);
  let isSigned = false;
  for (const secret of secrets) {
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const key = await crypto.subtle.importKey("raw", buffer(fromBase64(secret.replace(/^whsec_/, ""))), algorithm, false, ["verify"]);
    for (const signature of signatures.split(" ")) {
      if (!/^v1,[A-Za-z0-9+/]{43}=$/.test(signature)) continue;
      if (await crypto.subtle.verify("HMAC", key, buffer(fromBase64(signature.slice(3))), buffer(signed))) isSigned = true; // in constant time
    }
  }
  if (!isSigned) throw invalid("no secret has signed this body");
  return { id, timestamp: Number(timestamp), body: bytes };
}

function buffer(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return bytes as Uint8Array<ArrayBuffer>;
}

function headerOf(headers: Headers | Record<string, string | string[] | undefined>, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const value = Object.entries(headers).find(([given]) => given.toLowerCase() === name)?.[1];
  return typeof value === "string" ? value : value?.[0];
}

function invalid(detail: string): PenstockError {
  return new PenstockError({ code: "webhook_invalid", detail });
}
