/** The client of Penstock for browsers, Node, Deno and Bun: `fetch` and nothing else. */
export { Client, type Appended, type Arguments, type TableOptions } from "./client.js";
export { Consumer, type ConsumeOptions, type Positions } from "./consumer.js";
export type * from "./contract.js";
export { isPenstockError, PenstockError } from "./errors.js";
export { EventStream, type EventOptions } from "./events.js";
export { GroupConsumer, type GroupOptions } from "./group.js";
export type { Delivery, Position } from "./outcome.js";
export { Producer, type ProducerOptions } from "./producer.js";
export { Job, ShareConsumer, type ShareOptions } from "./queue.js";
export { partitionOf, StoredRecord, type HeaderValue, type OutgoingRecord } from "./records.js";
export type { AcceptedCount, ProducerStatistics } from "./statistics.js";
export { OPERATIONS, PROBLEMS } from "./tables.js";
export { VERSION, type CallOptions, type ClientOptions, type TraceContext } from "./transport.js";
export { verifyWebhook, type WebhookEvent } from "./webhook.js";
