/** The pulls that a consumer holds: which of their messages are decided, and until when they are leased. */

import type { Schemas } from "./client.js";
import { Message } from "./message.js";

type Settlement = Schemas["Settlement"];

const MOST_SETTLEMENTS = 500; // of a request; the server takes 1,000

/** What becomes of a message of a pull. */
export type Outcome = { ack: true } | { retry: Omit<Schemas["RetryLater"], "index"> } | { dead: string } | { release: true };

/** One pull: its messages share a receipt and a lease. */
export class Held {
  readonly messages: Message[];
  readonly ordered: boolean;
  readonly suspect: boolean;
  readonly #receipt: string;
  readonly #undecided: Set<number>;
  #decided: Required<Pick<Settlement, "ack" | "retry" | "dead" | "release">> = nothing();
  #leasedUntilMs: number;
  #waitsUntilMs = 0;
  #tries = 0;
  #underWay = 0; // settlements that are sent and not answered
  /** Whether nothing of the pull is left to settle. */
  closed = false;

  constructor(pull: Schemas["Pull"], leasedUntilMs: number) {
    this.messages = pull.messages.map((each) => new Message(each));
    this.ordered = pull.ordered ?? false;
    this.suspect = pull.suspect ?? false;
    this.#receipt = pull.receipt;
    this.#undecided = new Set(pull.messages.keys());
    this.#leasedUntilMs = leasedUntilMs;
  }

  /** Notes what becomes of a message. The first decision counts. */
  decide(index: number, outcome: Outcome): void {
    if (this.closed || !this.#undecided.delete(index)) return;
    if ("ack" in outcome) this.#decided.ack!.push(index);
    else if ("retry" in outcome) this.#decided.retry!.push({ index, ...outcome.retry });
    else if ("dead" in outcome) this.#decided.dead!.push({ index, detail: outcome.dead });
    else this.#decided.release!.push(index);
  }

  /** Returns what is decided and not sent yet; undefined if that is nothing, or waits for a cell. */
  take(nowMs: number): Settlement | undefined {
    if (this.closed || nowMs < this.#waitsUntilMs || Object.values(this.#decided).every((each) => !each!.length)) {
      return undefined;
    }
    const taken = { receipt: this.#receipt, ...this.#decided };
    this.#decided = nothing();
    this.#underWay += 1;
    return taken;
  }

  /** Takes in the answer to a settlement of this pull. */
  answered(sent: Settlement, answer: Schemas["Settled"], leaseMs: number, sentAtMs: number): void {
    this.#underWay -= 1;
    if (answer.status === "unavailable") return this.#wait(sent);
    this.#tries = 0;
    if (answer.status === "extended") this.#leasedUntilMs = sentAtMs + leaseMs;
    else if (answer.status === "settled") this.closed = true;
    else if (answer.status === "stale") this.lose();
    else if (this.#undecided.size + this.#underWay === 0 && !this.#isDeciding()) this.closed = true; // the rest is not ours
  }

  /** The lease is gone, and with it whatever is decided. */
  lose(): void {
    this.closed = true;
    for (const message of this.messages) message.lose();
  }

  /** Gives up the messages if their lease has ended. */
  expire(nowMs: number): void {
    if (!this.closed && this.#undecided.size > 0 && nowMs >= this.#leasedUntilMs) this.lose();
  }

  /** Returns the request for a longer lease, once a third of it has passed. */
  renewal(nowMs: number, leaseSeconds: number): Settlement | undefined {
    if (this.closed || this.#undecided.size === 0) return undefined;
    const due = this.#leasedUntilMs - (leaseSeconds * 1_000 * 2) / 3;
    if (nowMs < due) return undefined;
    this.#underWay += 1;
    return { receipt: this.#receipt, extend_seconds: leaseSeconds };
  }

  #isDeciding(): boolean {
    return Object.values(this.#decided).some((each) => each!.length > 0);
  }

  /** The messages are in a cell that is out of reach: the same settlement goes again, later. */
  #wait(sent: Settlement): void {
    this.#waitsUntilMs = Date.now() + Math.min(500 * 2 ** this.#tries, 5_000);
    this.#tries += 1;
    for (const name of ["ack", "retry", "dead", "release"] as const) {
      (this.#decided[name] as unknown[]).unshift(...(sent[name] ?? []));
    }
  }
}

/** A settlement, and the pull that it belongs to. */
export interface Step {
  held: Held;
  settlement: Settlement;
}

/** All pulls of a consumer. */
export class Leases {
  #held: Held[] = [];

  add(held: Held): void {
    this.#held.push(held);
  }

  /** The number of pulls with messages that are not settled. */
  get size(): number {
    this.#held = this.#held.filter((each) => !each.closed);
    return this.#held.length;
  }

  get hasSuspect(): boolean {
    return this.#held.some((each) => each.suspect && !each.closed);
  }

  expire(nowMs: number): void {
    for (const held of this.#held) held.expire(nowMs);
  }

  take(nowMs: number): Step[] {
    return this.#steps((held) => held.take(nowMs));
  }

  renewals(nowMs: number, leaseSeconds: number): Step[] {
    return this.#steps((held) => held.renewal(nowMs, leaseSeconds));
  }

  #steps(settlement: (held: Held) => Settlement | undefined): Step[] {
    const steps: Step[] = [];
    for (const held of this.#held) {
      const found = steps.length < MOST_SETTLEMENTS ? settlement(held) : undefined;
      if (found) steps.push({ held, settlement: found });
    }
    return steps;
  }
}

function nothing(): Required<Pick<Settlement, "ack" | "retry" | "dead" | "release">> {
  return { ack: [], retry: [], dead: [], release: [] };
}
