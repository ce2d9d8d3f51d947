/** Makes requests, and repeats those that a later try may carry out. */

import type { components } from "./api.js";

export type Schemas = components["schemas"];
export type NewMessage = Schemas["NewMessage"];
export type SendResult = Schemas["SendResult"];

export interface ClientOptions {
  /** The token of an embedded server. */
  token?: string;
  /** Makes the requests in place of `fetch`, such as one that signs them for AWS. */
  fetch?: typeof fetch;
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5_000;
const LONGEST_GIVEN_PAUSE_MS = 10_000;
const TIMEOUT_MS = 15_000; // behind the wait that a pull asks for
/** Each settlement of a request waits for its cell. Other settlements need not wait for them. */
export const UNAVAILABLE_RECEIPTS = "urn:hourwheel:receipt-unavailable";
const PASSING = new Set([408, 429, 500, 502, 503, 504, 507]);

/** An answer, and when the request began that brought it. */
export interface Answered<Answer> {
  answer: Answer;
  sentAtMs: number;
}

/** An answer that refuses a request. `type` is stable, such as `urn:hourwheel:token-wrong`. */
export class RequestError extends Error {
  override readonly name = "RequestError";

  constructor(
    readonly status: number,
    readonly type: string,
    detail: string,
    readonly retryAfterMs: number | undefined,
  ) {
    super(`${status} ${type}: ${detail}`);
  }

  /** Whether the same request may be carried out later. */
  get passes(): boolean {
    return PASSING.has(this.status) && this.type !== UNAVAILABLE_RECEIPTS;
  }
}

/** Sends messages, and makes any other call of the HTTP API. */
export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;

  constructor(url: string, options: ClientOptions = {}) {
    this.#url = new URL(url).href.replace(/\/+$/, "");
    this.#headers = { "content-type": "application/json" };
    if (options.token !== undefined) this.#headers["authorization"] = `Bearer ${options.token}`;
    this.#fetch = options.fetch ?? fetch;
  }

  /**
   * Stores messages, 1,000 at most, all or none. Repeats the request until the server answers: its idempotency key
   * keeps the messages from being stored twice. Rejects with `RequestError` where the server refuses them, or with the
   * reason of `signal`.
   */
  async send(subject: string, messages: NewMessage[], signal?: AbortSignal): Promise<SendResult[]> {
    const body = { messages, idempotency_key: crypto.randomUUID() };
    const path = `/v1/subjects/${encodeURIComponent(subject)}/messages`;
    const { answer } = await this.persist<Schemas["SendResults"]>(path, body, signal);
    return answer.results;
  }

  /** Makes one call with a JSON body. Rejects with `RequestError`, or with `TypeError` where no server answers. */
  async post<Answer>(path: string, body: object, signal?: AbortSignal): Promise<Answer> {
    return this.#request<Answer>(path, JSON.stringify(body), signal, TIMEOUT_MS);
  }

  async #request<Answer>(path: string, body: string, signal: AbortSignal | undefined, ms: number): Promise<Answer> {
    const late = AbortSignal.timeout(ms);
    const request = this.#fetch; // called without this client as its receiver, which a browser refuses
    const answer = await request(this.#url + path, {
      method: "POST",
      headers: this.#headers,
      body,
      signal: signal ? AbortSignal.any([signal, late]) : late,
    });
    if (answer.ok) return (await answer.json()) as Answer;
    throw await refusal(answer);
  }

  /** Makes a call until the server carries it out or refuses it for good, with growing pauses. */
  async persist<Answer>(path: string, body: object, signal?: AbortSignal, timeoutMs = TIMEOUT_MS): Promise<Answered<Answer>> {
    const text = JSON.stringify(body);
    for (let tries = 0; ; tries += 1) {
      try {
        const sentAtMs = Date.now();
        return { answer: await this.#request<Answer>(path, text, signal, timeoutMs), sentAtMs };
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof RequestError && !error.passes) throw error;
        const given = error instanceof RequestError ? error.retryAfterMs : undefined;
        await sleep(given ?? pauseMs(tries), signal);
      }
    }
  }
}

/** Half to all of a time that doubles with each try, so that consumers do not come back together. */
export function pauseMs(tries: number): number {
  const most = Math.min(FIRST_PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS);
  return most * (0.5 + Math.random() / 2);
}

/** Resolves after this time. Rejects with the reason of `signal` when it aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

async function refusal(answer: Response): Promise<RequestError> {
  const text = await answer.text();
  let problem: Partial<Schemas["Problem"]> = {};
  try {
    problem = JSON.parse(text) as Partial<Schemas["Problem"]>;
  } catch {
    // A gateway in front of the server may answer by itself, with any text.
  }
  const seconds = Number(answer.headers.get("retry-after") ?? Number.NaN);
  const retryAfterMs = Number.isFinite(seconds) ? Math.min(seconds * 1_000, LONGEST_GIVEN_PAUSE_MS) : undefined;
  return new RequestError(answer.status, problem.type ?? "about:blank", problem.detail ?? text.slice(0, 200), retryAfterMs);
}
