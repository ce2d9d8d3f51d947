/** Pulls messages, calls a handler with each, renews their leases and settles them. */

import { Client, RequestError, sleep, UNAVAILABLE_RECEIPTS, type Answered, type ClientOptions, type Schemas } from "./client.js";
import { Held, Leases, type Outcome, type Step } from "./leases.js";
import { Message, Reject, Retry } from "./message.js";

declare const process:
  | { on(signal: string, listener: () => void): void; off(signal: string, listener: () => void): void }
  | undefined;

export type Handler = (message: Message) => void | Promise<void>;

export interface ConsumerOptions extends ClientOptions {
  /** The name of the consumer; by default one of its own. */
  consumer?: string;
  /** The number of messages that are handled at once (default 1). */
  concurrency?: number;
  /** The most messages of a pull, 1 to 1,000 (default: four times `concurrency`). */
  maxMessages?: number;
  /** How long a pull waits for a message, 0 to 20 (default 20). */
  waitSeconds?: number;
  /** The lease of messages, which is renewed while their handlers run (default 30). */
  leaseSeconds?: number;
  /** How long `stop` waits for the handlers at work (default 20). */
  drainSeconds?: number;
  /** SIGTERM and SIGINT stop `run` (default true). */
  signals?: boolean;
}

const SETTLE_AFTER_MS = 20;
const PULL_TIMEOUT_MS = 15_000; // behind its wait
const LONGEST_SETTLEMENT_MS = 15_000;
const LEASE_MARGIN_MS = 50; // of each second of a lease: what an answer may take on its way
const LOOK_AGAIN_MS = 250;
const LAST_SETTLEMENT_MS = 5_000;
const REST_MS = 200; // before the next pull, where the server answered one without messages early
const REST_OF_LIMITED_MS = 1_000;
const LONGEST_DETAIL = 1_000;

/** One message in hand. */
interface Delivery {
  held: Held;
  index: number;
}

/**
 * Receives the messages of a group. The consumers of a group share them. When the handler returns, its message is
 * acknowledged; when it throws `Retry`, or any other error, the message is retried; `Reject` makes it a dead letter.
 * Messages come at least once. In an ordered group the messages of a key are handled one after the other.
 */
export class Consumer {
  readonly #client: Client;
  readonly #path: string;
  readonly #options: Required<Omit<ConsumerOptions, keyof ClientOptions>>;
  readonly #leases = new Leases();
  readonly #stopping = new AbortController();
  readonly #ended = new AbortController();
  #waiting: Delivery[][] = []; // runs of messages that are handled one after the other
  readonly #working = new Set<Delivery>(); // what handlers are called with
  #runs = 0; // that are being handled
  #suspectsWait = false;
  #wake: () => void = () => {};
  #settleTimer: ReturnType<typeof setTimeout> | undefined;
  #sending: Promise<void> = Promise.resolve();
  #turns = 0;
  #failure: unknown;
  #began = false;

  constructor(
    url: string,
    subject: string,
    group: string,
    readonly handler: Handler,
    options: ConsumerOptions = {},
  ) {
    this.#client = new Client(url, options);
    this.#path = `/v1/subjects/${encodeURIComponent(subject)}/groups/${encodeURIComponent(group)}`;
    const concurrency = options.concurrency ?? 1;
    this.#options = {
      consumer: options.consumer ?? `node-${crypto.randomUUID()}`,
      concurrency,
      maxMessages: options.maxMessages ?? Math.min(4 * concurrency, 1_000),
      waitSeconds: options.waitSeconds ?? 20,
      leaseSeconds: options.leaseSeconds ?? 30,
      drainSeconds: options.drainSeconds ?? 20,
      signals: options.signals ?? true,
    };
  }

  /**
   * Handles messages until `stop`. Rejects with `RequestError` where the server refuses the consumer for good. While
   * the server is away, it waits.
   */
  async run(): Promise<void> {
    if (this.#began) throw new Error("a consumer runs once: make another one");
    this.#began = true;
    const listen = (act: "on" | "off") => {
      if (this.#options.signals && typeof process !== "undefined") for (const name of SIGNALS) process[act](name, stop);
    };
    const stop = () => {
      listen("off"); // a second signal ends the process
      this.stop();
    };
    listen("on");
    const renewing = setInterval(() => this.#renew(), (this.#options.leaseSeconds * 1_000) / 10);
    try {
      while (!this.#stopping.signal.aborted) await this.#turn();
      await this.#drain();
    } finally {
      clearInterval(renewing);
      this.#ended.abort(new Error("the consumer has ended"));
      listen("off");
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Ends `run`: handlers at work may finish within `drainSeconds`; other consumers get the rest at once. */
  stop(): void {
    this.#stopping.abort(new Error("the consumer was stopped"));
    this.#wake();
  }

  async #turn(): Promise<void> {
    const room = this.#options.concurrency - this.#runs - this.#waiting.length;
    const alone = this.#leases.hasSuspect || (this.#suspectsWait && this.#leases.size > 0);
    if (room <= 0 || alone) return this.#woken();
    try {
      await this.#pull();
    } catch (error) {
      if (!this.#stopping.signal.aborted) this.#fail(error);
    }
  }

  async #pull(): Promise<void> {
    const suspects = this.#leases.size === 0; // a consumer that holds messages must not lose them with a suspect
    const steps = this.#leases.take(Date.now());
    const { consumer, maxMessages, waitSeconds, leaseSeconds } = this.#options;
    const settle = steps.map((step) => step.settlement);
    const request = { consumer, suspects, max_messages: maxMessages, wait_seconds: waitSeconds, lease_seconds: leaseSeconds };
    const began = performance.now();
    let answered: Answered<Schemas["Pulled"]>;
    try {
      answered = await this.#client.persist<Schemas["Pulled"]>(
        `${this.#path}/pull`,
        { ...request, settle },
        this.#stopping.signal,
        waitSeconds * 1_000 + PULL_TIMEOUT_MS,
      );
    } catch (error) {
      // Settlements of a pull that was cut off go once more: repeating them does no harm.
      if (this.#stopping.signal.aborted) void this.#inTurn(() => steps);
      else if (steps.length && isRefusal(error)) return void (await this.#inTurn(() => steps));
      throw error;
    }
    const { answer, sentAtMs } = answered;
    this.#answered(steps, answer.settled ?? [], sentAtMs);
    this.#suspectsWait = answer.suspects_wait ?? false;
    // The lease began when the server found the messages: shortly before the answer, however long the pull has waited.
    const leasedUntil = Date.now() + leaseSeconds * (1_000 - LEASE_MARGIN_MS);
    for (const pull of answer.pulls) this.#take(new Held(pull, leasedUntil));
    const early = performance.now() - began < Math.max(waitSeconds * 500, REST_MS);
    if (early && !answer.pulls.length && !this.#suspectsWait) {
      const ms = answer.limited_by ? REST_OF_LIMITED_MS : REST_MS;
      await sleep(ms * (0.5 + Math.random() / 2), this.#stopping.signal);
    }
  }

  #take(held: Held): void {
    this.#leases.add(held);
    const runs = new Map<string, Delivery[]>();
    held.messages.forEach((message, index) => {
      const name = held.ordered && message.key !== undefined ? `key ${message.key}` : `message ${index}`;
      runs.set(name, [...(runs.get(name) ?? []), { held, index }]);
    });
    this.#waiting.push(...runs.values());
    this.#start();
  }

  #start(): void {
    while (this.#runs < this.#options.concurrency && !this.#stopping.signal.aborted) {
      const run = this.#waiting.shift();
      if (!run) return;
      this.#runs += 1;
      void this.#handle(run).finally(() => {
        this.#runs -= 1;
        this.#start();
        this.#wake();
      });
    }
  }

  /** Handles messages one after the other. Behind one that fails, the others are released. */
  async #handle(run: Delivery[]): Promise<void> {
    let failed = false;
    for (const delivery of run) {
      const { held, index } = delivery;
      const message = held.messages[index] as Message;
      if (failed || this.#stopping.signal.aborted) {
        this.#decide(held, index, { release: true });
        continue;
      }
      if (message.lost) continue;
      this.#working.add(delivery);
      const outcome = await this.#outcome(message);
      this.#working.delete(delivery);
      failed = !("ack" in outcome);
      this.#decide(held, index, outcome);
    }
  }

  async #outcome(message: Message): Promise<Outcome> {
    try {
      await this.handler(message);
      return { ack: true };
    } catch (error) {
      const detail = described(error);
      if (error instanceof Reject) return { dead: detail };
      const delay = error instanceof Retry ? error.delay : undefined;
      return { retry: delay === undefined ? { detail } : { delay, detail } };
    }
  }

  #decide(held: Held, index: number, outcome: Outcome): void {
    if (held.closed || this.#ended.signal.aborted) return;
    held.decide(index, outcome);
    this.#settleTimer ??= setTimeout(() => {
      this.#settleTimer = undefined;
      void this.#settle();
    }, SETTLE_AFTER_MS);
  }

  /** Sends what is decided. */
  #settle(): Promise<void> {
    return this.#inTurn(() => this.#leases.take(Date.now()));
  }

  #renew(): void {
    this.#leases.expire(Date.now());
    this.#wake(); // there may be room now
    if (this.#turns > 0) return; // a request is under way; the next call comes soon
    void this.#inTurn(() => {
      const now = Date.now();
      return [...this.#leases.renewals(now, this.#options.leaseSeconds), ...this.#leases.take(now)];
    });
  }

  /** Sends these steps behind all others, so that settlements of a pull arrive in their order. */
  #inTurn(steps: () => Step[]): Promise<void> {
    this.#turns += 1;
    this.#sending = this.#sending
      .then(() => this.#send(steps()))
      .catch((error: unknown) => this.#fail(error))
      .finally(() => (this.#turns -= 1));
    return this.#sending;
  }

  async #send(steps: Step[]): Promise<void> {
    if (!steps.length) return;
    const body = { settle: steps.map((step) => step.settlement) };
    const timeoutMs = Math.min(this.#options.leaseSeconds * 500, LONGEST_SETTLEMENT_MS);
    try {
      const { answer, sentAtMs } = await this.#client.persist<Schemas["SettleResult"]>(
        `${this.#path}/ack`,
        body,
        this.#ended.signal,
        timeoutMs,
      );
      this.#answered(steps, answer.results, sentAtMs);
    } catch (error) {
      if (this.#ended.signal.aborted) return;
      if (error instanceof RequestError && error.type === UNAVAILABLE_RECEIPTS) {
        this.#answered(steps, steps.map(() => ({ status: "unavailable" })), Date.now());
      } else if (steps.length > 1 && isRefusal(error)) {
        // One settlement is wrong, and nothing of the request is carried out: the others go without it.
        for (const step of steps) await this.#send([step]);
      } else if (isOfReceipts(error)) {
        this.#lose(steps);
      } else {
        this.#fail(error);
      }
    }
    this.#wake();
  }

  #answered(steps: Step[], answers: Schemas["Settled"][], sentAt: number): void {
    const leaseMs = this.#options.leaseSeconds * 1_000;
    steps.forEach(({ held, settlement }, at) => {
      const answer = answers[at];
      if (answer) held.answered(settlement, answer, leaseMs, sentAt);
    });
  }

  #lose(steps: Step[]): void {
    for (const { held } of steps) held.lose();
  }

  #fail(error: unknown): void {
    this.#failure ??= error;
    this.stop();
  }

  /** Waits until something has changed: a handler is free, messages are settled, or the consumer is stopped. */
  #woken(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  async #drain(): Promise<void> {
    for (const { held, index } of this.#waiting.splice(0).flat()) this.#decide(held, index, { release: true });
    await this.#within(this.#options.drainSeconds * 1_000, () => this.#runs > 0);
    for (const { held, index } of this.#working) {
      this.#decide(held, index, { release: true });
      held.messages[index]?.lose();
    }
    await this.#within(LAST_SETTLEMENT_MS, () => this.#leases.size > 0);
  }

  /** Settles until nothing is left to wait for, or the time is over. */
  async #within(ms: number, isLeft: () => boolean): Promise<void> {
    const until = Date.now() + ms;
    void this.#settle();
    while (isLeft() && Date.now() < until) {
      await Promise.race([this.#woken(), sleep(Math.min(LOOK_AGAIN_MS, until - Date.now()))]);
      void this.#settle();
    }
  }
}

const SIGNALS = ["SIGTERM", "SIGINT"];
const GONE = new Set(["receipt-stale", "receipt-invalid", "subject-unknown", "group-unknown"]);

/** Whether the server has refused a request and carried out nothing of it: because of one of its settlements, perhaps. */
function isRefusal(error: unknown): boolean {
  return error instanceof RequestError && (error.status === 400 || isOfReceipts(error));
}

/** Whether an error says that receipts are of no use any more, and nothing else is wrong. */
function isOfReceipts(error: unknown): boolean {
  return error instanceof RequestError && GONE.has(error.type.replace("urn:hourwheel:", ""));
}

function described(error: unknown): string {
  const named = error instanceof Retry || error instanceof Reject;
  const text = error instanceof Error && !named ? `${error.name}: ${error.message.split("\n", 1)[0]}` : String((error as Error)?.message ?? error);
  // By characters: half of an emoji is no text, and the server refuses it.
  return [...text].slice(0, LONGEST_DETAIL).join("").toWellFormed();
}
