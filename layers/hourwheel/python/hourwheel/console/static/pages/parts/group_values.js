/** Turns the settings of a group into the texts of a form, and back into the body of a request. */

import { changes, durationText, FieldError, list, number, seconds } from "./values.js";

const MOST = 1000000; // the API's bound of messages in flight and per second
const MOST_RETRY_SECONDS = 2592000;
const EXPIRES_SECONDS = { from: 60, to: 2592000, fractions: false };
const ADDRESS = { https: "url", python: "name" };

export const addressField = (kind) => ADDRESS[kind] ?? "arn";

/** What a new group has when a person changes nothing. */
export const DEFAULTS = {
  max_attempts: 16,
  max_in_flight: 0,
  messages_per_second: 0,
  retry_percent: 50,
  retry: { first_seconds: 5, factor: 2, cap_seconds: 7200 },
  filter: null,
  push: null,
  ordered: false,
  broadcast: false,
};

/** Returns the texts with which the form begins. */
export function textsOf(group) {
  const { retry, filter, push } = group;
  return {
    max_attempts: String(group.max_attempts),
    max_in_flight: String(group.max_in_flight),
    messages_per_second: String(group.messages_per_second),
    retry_percent: String(group.retry_percent),
    retry_kind: retry.delays_seconds ? "list" : "growing",
    first: durationText(retry.first_seconds ?? 5),
    factor: String(retry.factor ?? 2),
    cap: durationText(retry.cap_seconds ?? 7200),
    delays: (retry.delays_seconds ?? [1, 10, 60]).map(durationText).join(", "),
    tags_any: (filter?.tags_any ?? []).join(", "),
    tags_all: (filter?.tags_all ?? []).join(", "),
    tags_none: (filter?.tags_none ?? []).join(", "),
    push_kind: push?.kind ?? "none",
    address: push ? push[addressField(push.kind)] : "",
    batch: String(push?.batch ?? 10),
    concurrency: String(push?.concurrency ?? 2),
    timeout: String(push?.timeout_seconds ?? 30),
    when_dead: group.when_dead ?? "continue",
    max_held: String(group.max_held ?? 10000),
    expires: durationText(group.consumer_expires_seconds ?? 259200),
  };
}

function retryOf(texts) {
  const bounds = { from: 0, to: MOST_RETRY_SECONDS };
  if (texts.retry_kind === "list") {
    const delays = texts.delays.split(/[,\n]/).filter((each) => each.trim());
    if (!delays.length || delays.length > 100) throw new FieldError("Delays", "takes 1 to 100 durations");
    return { delays_seconds: delays.map((each) => seconds(each, { label: "Delays", ...bounds })) };
  }
  return {
    first_seconds: seconds(texts.first, { label: "First delay", ...bounds }),
    factor: number(texts.factor, { label: "Factor", from: 1, to: 100, fractions: true }),
    cap_seconds: seconds(texts.cap, { label: "Longest delay", ...bounds }),
  };
}

function filterOf(texts) {
  const filter = { tags_any: list(texts.tags_any), tags_all: list(texts.tags_all), tags_none: list(texts.tags_none) };
  return Object.values(filter).some((tags) => tags.length) ? filter : null;
}

function pushOf(texts, before) {
  const kind = texts.push_kind;
  if (kind === "none") return null;
  if (!texts.address.trim()) throw new FieldError("Address", "is needed for a push target");
  return {
    kind,
    [addressField(kind)]: texts.address.trim(),
    batch: number(texts.batch, { label: "Batch", from: 1, to: 1000 }),
    concurrency: number(texts.concurrency, { label: "Deliveries at a time", from: 1, to: 20 }),
    timeout_seconds: number(texts.timeout, { label: "Time-out in seconds", from: 1, to: 300 }),
    ...(kind === "https" && before?.kind === "https" ? { secret_version: before.secret_version } : {}),
  };
}

/** Returns the settings that the texts of the form describe. Throws `FieldError`. */
export function settingsOf(texts, group) {
  return {
    max_attempts: number(texts.max_attempts, { label: "Attempts", from: 1, to: 1000 }),
    max_in_flight: number(texts.max_in_flight, { label: "In flight at once", from: 0, to: MOST }),
    messages_per_second: number(texts.messages_per_second, {
      label: "Messages per second",
      from: 0,
      to: MOST,
      fractions: true,
    }),
    retry_percent: number(texts.retry_percent, { label: "Percentage of retries", from: 1, to: 100 }),
    retry: retryOf(texts),
    ...(group.ordered ? {} : { filter: filterOf(texts) }),
    ...(group.broadcast ? {} : { push: pushOf(texts, group.push) }),
    ...(group.ordered
      ? {
          when_dead: texts.when_dead,
          max_held: number(texts.max_held, { label: "Most held keys", from: 1, to: 100000 }),
        }
      : {}),
    ...(group.broadcast
      ? { consumer_expires_seconds: seconds(texts.expires, { label: "Forgotten after", ...EXPIRES_SECONDS }) }
      : {}),
  };
}

const EFFECTS = {
  filter: "Applies from the next pull, also to messages that wait; retries come whatever the filter says.",
  push: "Deliveries may still go to the old target for a second or two. A new target ends a pause of the pushes.",
  retry: "Applies to the retries from now on.",
  max_attempts: "A message that was attempted this often becomes a dead letter at its next failure.",
  when_dead: "With stop, a key waits for a decision once a message of it is given up.",
};

const shown = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** Returns a line for each setting that changes: what it was, what it becomes, and what this means. */
export function groupChanges(before, after) {
  return changes(before, after).map(
    ({ name, from, to }) => `${name}: ${shown(from)} → ${shown(to)}.${EFFECTS[name] ? ` ${EFFECTS[name]}` : ""}`,
  );
}
