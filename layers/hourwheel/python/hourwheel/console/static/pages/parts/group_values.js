/** Turns the settings of a group into the texts of a form, and back into the body of a request. */

import { settings } from "../../api.js";
import { settingValue } from "./declared.js";
import { changes, durationText, FieldError, list, number, seconds } from "./values.js";

const MOST_RETRY_SECONDS = 2592000;
const ADDRESS = { https: "url", python: "name" };

export const addressField = (kind) => ADDRESS[kind] ?? "arn";

/** What a new group has when a person changes nothing. */
export const defaults = () => ({
  ...Object.fromEntries(settings.groupSettings.map((declared) => [declared.name, declared.default])),
  retry: { first_seconds: 5, factor: 2, cap_seconds: 7200 },
  filter: null,
  push: null,
});

/** Returns the declared settings that a group has and a person may change. A server of an earlier version lacks some. */
const changeable = (group) =>
  settings.groupSettings.filter(
    (declared) => !declared.fixed && (!declared.needs || group[declared.needs]) && group[declared.name] !== undefined,
  );

/** Returns the texts with which the form begins. */
export function textsOf(group) {
  const { retry, filter, push } = group;
  return {
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
  };
}

/** Returns the number of a text; that of `before` where the text is the one that its field began with. */
const kept = (text, shown, before, read) => (before !== undefined && text.trim() === shown(before) ? before : read());

function retryOf(texts, before) {
  const bounds = { from: 0, to: MOST_RETRY_SECONDS };
  const duration = (text, label, known) =>
    kept(text, durationText, known, () => seconds(text, { label, ...bounds }));
  if (texts.retry_kind === "list") {
    const delays = texts.delays.split(/[,\n]/).filter((each) => each.trim());
    if (!delays.length || delays.length > 100) throw new FieldError("Delays", "takes 1 to 100 durations");
    const delayOf = (text) => before.delays_seconds?.find((delay) => durationText(delay) === text.trim());
    return { delays_seconds: delays.map((each) => duration(each, "Delays", delayOf(each))) };
  }
  return {
    first_seconds: duration(texts.first, "First delay", before.first_seconds),
    factor: kept(texts.factor, String, before.factor, () =>
      number(texts.factor, { label: "Factor", from: 1, to: 100, fractions: true }),
    ),
    cap_seconds: duration(texts.cap, "Longest delay", before.cap_seconds),
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
    ...Object.fromEntries(
      changeable(group).map((declared) => [declared.name, settingValue(declared, texts[declared.name], group[declared.name])]),
    ),
    retry: retryOf(texts, group.retry),
    ...(group.ordered ? {} : { filter: filterOf(texts) }),
    ...(group.broadcast ? {} : { push: pushOf(texts, group.push) }),
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
