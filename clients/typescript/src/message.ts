/** What a handler gets, and what it may throw. */

import type { Schemas } from "./client.js";

const DELAY = /^\d+(\.\d+)?(ms|s|m|h|d)$/;

/** Thrown by a handler: the message is retried, after `delay` (seconds, or text such as "10m") or by the group's policy. */
export class Retry extends Error {
  override readonly name = "Retry";

  constructor(
    detail?: string,
    readonly delay?: number | string,
  ) {
    super(detail);
    const isDelay = typeof delay === "number" ? delay >= 0 && delay < Infinity : delay === undefined || DELAY.test(delay);
    // Refused here, where it costs one message its attempt: the server refuses the whole settlement.
    if (!isDelay) throw new RangeError(`a delay is a number of seconds, or one with ms, s, m, h or d, got ${delay}`);
  }
}

/** Thrown by a handler: the message becomes a dead letter at once. */
export class Reject extends Error {
  override readonly name = "Reject";
}

/** A message that is leased to this consumer. */
export class Message {
  readonly #lost = new AbortController();

  constructor(
    /** The message as the server sent it. */
    readonly raw: Schemas["Received"],
  ) {}

  get id(): string {
    return this.raw.id;
  }

  get key(): string | undefined {
    return this.raw.key ?? undefined;
  }

  get tags(): string[] {
    return this.raw.tags ?? [];
  }

  get headers(): Record<string, string> {
    return this.raw.headers ?? {};
  }

  /** The number of this attempt, from 1. */
  get attempt(): number {
    return this.raw.attempt;
  }

  get producedAt(): Date {
    return new Date(this.raw.produced_at);
  }

  /** The bytes of the body, whether it came as text or as base64. */
  get bytes(): Uint8Array {
    const encoded = this.raw.body_base64;
    if (encoded === undefined || encoded === null) return new TextEncoder().encode(this.raw.body ?? "");
    return Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
  }

  /** The body as text. Throws `TypeError` if it is not UTF-8. */
  get text(): string {
    return this.raw.body ?? new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes);
  }

  /** The body, decoded from JSON. Throws `SyntaxError` if it is none. */
  json<T>(): T {
    return JSON.parse(this.text) as T;
  }

  /** Aborts when the lease is lost: another consumer may have the message, and the result of the handler is dropped. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  get lost(): boolean {
    return this.#lost.signal.aborted;
  }

  /** Called by the consumer. */
  lose(): void {
    this.#lost.abort(new Error(`the lease of message ${this.id} is lost`));
  }
}
