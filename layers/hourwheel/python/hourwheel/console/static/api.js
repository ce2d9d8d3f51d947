/**
 * Calls the HTTP API of the server that this page came from, or of the deployment behind `hourwheel console`.
 *
 * Nothing here repeats a call that could change something. Reading is repeated by `poll` alone.
 */

import { withQuery } from "./dom.js";
import { pauseMs, readsAtOnce } from "./pauses.js";

const TOKEN = "hourwheel-token";
const SECRET = "hourwheel-secret";
const TABS_MS = 300; // a tab that has the secret answers within a few milliseconds
const TIMEOUT_MS = 40_000; // longer than any call of a page takes, so that a lost connection is noticed

/** Read from `settings.json`, before the first page is shown. */
export const settings = {
  readOnly: false,
  title: "Hourwheel",
  aws: false,
  base: "../v1/",
  version: "",
  needsToken: false,
  passesOn: false,
  callUsd: 0,
  readUsd: 0,
  groupSettings: [],
  pushTarget: [],
  retryPolicy: [],
  subjectSettings: [],
};

/** The calls of this page since it was opened: how many, and the most that they read. */
export const usage = { calls: 0, sinceMs: Date.now(), items: 0 };

/** A call that failed. `status` is 0 without an answer; `type` is the slug of the problem, such as `subject-unknown`. */
export class ApiError extends Error {
  constructor({ status, type, title, detail, field, correlationId, retryAfterMs }) {
    super(detail || title || `the server answered ${status}`);
    this.name = "ApiError";
    Object.assign(this, { status, type, title, detail, field, correlationId, retryAfterMs });
  }

  /** Whether the server has no such call: an older server, or one on AWS without it. */
  get isMissingCall() {
    return this.type === "route-unknown" || this.status === 405 || (this.status === 404 && this.type === "not-ours");
  }

  /** Whether it is unknown if the call had its effect. */
  get isUndecided() {
    return this.status === 0 || this.status >= 500;
  }
}

/** What keeps the page from the server: `{kind, error}`, kind "gone", "token", "secret" or "credentials"; or null. */
let trouble = null;
let recoveredMs = -Infinity; // on the clock of `performance`
const watchers = new Set();
const wakers = new Set();

/** Calls `watcher` with the trouble now, and at each change. */
export function watchTrouble(watcher) {
  watchers.add(watcher);
  watcher(trouble);
}

/** Makes every poll read at once: after a token was given, or when a person asks for it. */
export function refreshAll() {
  for (const wake of [...wakers]) wake();
}

function setTrouble(next) {
  if (trouble?.kind === next?.kind && trouble?.error?.message === next?.error?.message) return;
  const recovered = trouble !== null && next === null;
  trouble = next;
  for (const watcher of watchers) watcher(trouble);
  if (!recovered || !readsAtOnce(performance.now() - recoveredMs)) return;
  recoveredMs = performance.now();
  refreshAll();
}

const KINDS = {
  unreachable: "gone",
  "no-answer": "gone",
  "token-missing": "token",
  "token-wrong": "token",
  "console-secret": "secret",
  "credentials-expired": "credentials",
  "credentials-missing": "credentials",
  "credentials-refused": "credentials",
  "credentials-unavailable": "credentials",
  "clock-wrong": "credentials",
};

/** Returns whether the banner of the page tells this error already. */
export function isTrouble(error) {
  return error instanceof ApiError && error.type in KINDS;
}

function kept(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

function keep(name, value) {
  try {
    sessionStorage.setItem(name, value);
  } catch {
    // The value then lasts until the page is loaded again.
  }
}

let token = kept(TOKEN);
let secret = kept(SECRET);

/** Takes the secret of `hourwheel console` out of the address, where neither history nor a bookmark shall have it. */
export function takeSecret() {
  const match = /^#secret=([\w-]+)/.exec(location.hash);
  if (!match) return;
  secret = match[1];
  keep(SECRET, secret);
  history.replaceState(null, "", "#/");
}

const tabs = new BroadcastChannel("hourwheel-console"); // reaches tabs of this origin alone

tabs.addEventListener("message", ({ data }) => {
  if (data.ask && (token || secret)) tabs.postMessage({ token, secret });
});

/** Takes the token or the secret from another tab, for a link that a person opened in a new one. */
function askTabs() {
  return new Promise((resolve) => {
    const listening = new AbortController();
    const end = () => {
      listening.abort();
      resolve();
    };
    const take = ({ data }) => {
      if (!data.token && !data.secret) return;
      [token, secret] = [data.token, data.secret];
      if (token) keep(TOKEN, token);
      if (secret) keep(SECRET, secret);
      end();
    };
    tabs.addEventListener("message", take, { signal: listening.signal });
    tabs.postMessage({ ask: true });
    setTimeout(end, TABS_MS);
  });
}

/** Reads the settings, and takes what the API wants of a person from another tab, if one has it. */
export async function connect() {
  await loadSettings();
  const isNew = (settings.needsToken && !token) || (settings.passesOn && !secret);
  if (!isNew) return;
  await askTabs();
  if (token) await loadSettings();
}

/** Uses this token from now on, in this tab alone, and reads everything again. */
export async function useToken(text) {
  token = text;
  keep(TOKEN, text);
  await loadSettings();
  refreshAll();
}

async function loadSettings() {
  const answer = await exchange("GET", "settings.json", undefined, undefined, undefined);
  const known = {
    readOnly: answer.read_only,
    title: answer.title,
    aws: answer.aws,
    version: answer.version,
    needsToken: answer.needs_token,
    passesOn: answer.passes_on,
    callUsd: answer.call_usd,
    readUsd: answer.read_usd,
    groupSettings: answer.group_settings,
    pushTarget: answer.push_target,
    retryPolicy: answer.retry_policy,
    subjectSettings: answer.subject_settings,
  };
  Object.assign(settings, known);
}

async function exchange(method, address, query, body, signal, decode = decodeJson) {
  const headers = { accept: "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (secret) headers["x-hourwheel-console"] = secret;
  if (body !== undefined) headers["content-type"] = "application/json";
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const options = {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    referrerPolicy: "no-referrer",
  };
  let response;
  let text;
  try {
    response = await fetch(withQuery(address, query), options);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new ApiError({ status: 0, type: "unreachable", title: "The server does not answer", detail: reason(error) });
  }
  if (!response.ok) throw problem(response, text);
  return text ? decode(text, response.status) : null;
}

function decodeJson(text, status) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError({ status, type: "not-ours", title: "The answer is not JSON" });
  }
}

function reason(error) {
  return error.name === "TimeoutError" ? "The server did not answer in time." : "The server cannot be reached.";
}

function problem(response, text) {
  let said = {};
  try {
    said = JSON.parse(text) ?? {};
  } catch {
    // A gateway or proxy answered.
  }
  const ours = typeof said.type === "string" && said.type.startsWith("urn:hourwheel:");
  const seconds = Number(response.headers.get("retry-after"));
  return new ApiError({
    status: response.status,
    type: ours ? said.type.slice("urn:hourwheel:".length) : "not-ours",
    title: said.title ?? said.message ?? `The server answered ${response.status}`,
    detail: said.detail,
    field: said.field,
    correlationId: said.instance || null,
    retryAfterMs: seconds > 0 ? seconds * 1000 : 0,
  });
}

async function call(method, where, query, body, signal, decode) {
  if (settings.readOnly && method !== "GET") {
    throw new ApiError({ status: 403, type: "console-read-only", title: "The console is read-only" });
  }
  usage.calls += 1;
  try {
    const address = settings.base + where.replace(/^\/?(v1\/)?/, "");
    const answer = await exchange(method, address, query, body, signal, decode);
    setTrouble(null);
    return answer;
  } catch (error) {
    if (error instanceof ApiError) {
      const kind = KINDS[error.type];
      // An answer with another problem shows that the server is there.
      if (kind) setTrouble({ kind, error });
      else if (error.status && error.status < 500) setTrouble(null);
    }
    throw error;
  }
}

/** Returns the answer of a call that changes nothing. `where` is relative to `/v1/`, made with `path`. */
export function get(where, query, { signal } = {}) {
  return call("GET", where, query, undefined, signal);
}

/** Returns the text of an answer that is no JSON. */
export function getText(where, { signal } = {}) {
  return call("GET", where, undefined, undefined, signal, (text) => text);
}

export function post(where, body, { signal, query } = {}) {
  return call("POST", where, query, body ?? {}, signal);
}

export function put(where, body, { signal, query } = {}) {
  return call("PUT", where, query, body ?? {}, signal);
}

export function patch(where, body, { signal, query } = {}) {
  return call("PATCH", where, query, body ?? {}, signal);
}

export function del(where, body, { signal, query } = {}) {
  return call("DELETE", where, query, body, signal);
}

/**
 * Calls `load` now, and again `everyMs` after it has ended, until the signal aborts.
 *
 * After a failure it waits twice as long each time, up to a minute. On AWS it waits 30 s or more, and stops while the
 * tab is hidden; elsewhere it slows down then. `onError` gets what `load` threw. Returns `{refresh}`, which reads at
 * once: after an act, say. Two calls of `load` never run at the same time.
 */
export function poll(load, { everyMs = 2_000, signal, onError } = {}) {
  let failures = 0;
  let timer = 0;
  let running = false;
  let again = false;

  async function turn() {
    clearTimeout(timer);
    if (signal?.aborted) return;
    if (running) {
      again = true;
      return;
    }
    running = true;
    let atLeastMs = 0;
    try {
      await load(signal);
      failures = 0;
    } catch (error) {
      if (signal?.aborted) return;
      failures += 1;
      atLeastMs = error.retryAfterMs ?? 0;
      if (onError) onError(error);
      else if (!(error instanceof ApiError)) console.error(error);
    } finally {
      running = false;
    }
    if (signal?.aborted) return;
    if (again) {
      again = false;
      turn();
      return;
    }
    const pause = pauseMs(everyMs, failures, { aws: settings.aws, hidden: document.hidden, random: Math.random() });
    if (pause !== null) timer = setTimeout(turn, Math.max(pause, atLeastMs));
  }

  const wake = () => {
    if (!document.hidden) turn();
  };
  wakers.add(turn);
  document.addEventListener("visibilitychange", wake, { signal });
  window.addEventListener("online", wake, { signal });
  signal?.addEventListener("abort", () => {
    clearTimeout(timer);
    wakers.delete(turn);
  });
  turn();
  return { refresh: turn };
}
