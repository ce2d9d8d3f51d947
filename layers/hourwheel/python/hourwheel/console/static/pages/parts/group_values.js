/** Turns the settings of a group into the texts of a form, and back into the body of a request. */

import { settings } from "../../api.js";
import { settingText, settingValue } from "./declared.js";
import { changes, durationText, FieldError, list } from "./values.js";

const RETRY = { first_seconds: 5, factor: 2, cap_seconds: 7200 };
const ADDRESS = { https: "url", python: "name" };

export const addressField = (kind) => ADDRESS[kind] ?? "arn";

/** What a new group has when a person changes nothing. */
export const defaults = () => ({
  ...Object.fromEntries(settings.groupSettings.map((declared) => [declared.name, declared.default])),
  retry: RETRY,
  filter: null,
  push: null,
});

/** Returns the declared settings that a group has and a person may change. A server of an earlier version lacks some. */
const changeable = (group) =>
  settings.groupSettings.filter(
    (declared) => !declared.fixed && (!declared.needs || group[declared.needs]) && group[declared.name] !== undefined,
  );

/** The declared settings of a push target that a form has. The command line alone changes the version of the secret. */
const targetSettings = () => settings.pushTarget.filter(({ name }) => name !== "secret_version");

/** Returns the declared settings of the retry policy and of the push target, each with the value that it has. */
export const nestedSettings = ({ retry, push }) => [
  ...settings.retryPolicy.map((declared) => [declared, retry[declared.name] ?? RETRY[declared.name]]),
  ...targetSettings().map((declared) => [declared, push?.[declared.name] ?? declared.default]),
];

/** Returns the texts with which the form begins. */
export function textsOf(group) {
  const { retry, filter, push } = group;
  return {
    retry_kind: retry.delays_seconds ? "list" : "growing",
    delays: (retry.delays_seconds ?? [1, 10, 60]).map(durationText).join(", "),
    tags_any: (filter?.tags_any ?? []).join(", "),
    tags_all: (filter?.tags_all ?? []).join(", "),
    tags_none: (filter?.tags_none ?? []).join(", "),
    push_kind: push?.kind ?? "none",
    address: push ? push[addressField(push.kind)] : "",
    ...Object.fromEntries(
      nestedSettings(group).map(([declared, value]) => [declared.name, settingText(declared, value)]),
    ),
  };
}

/** Returns the values that the texts of declared settings stand for; `before` are those that they have now. */
const valuesOf = (declaredSettings, texts, before) =>
  Object.fromEntries(
    declaredSettings.map((declared) => [
      declared.name,
      settingValue(declared, texts[declared.name], before?.[declared.name]),
    ]),
  );

function retryOf(texts, before) {
  if (texts.retry_kind === "list") {
    const delays = texts.delays.split(/[,\n]/).filter((each) => each.trim());
    if (!delays.length || delays.length > 100) throw new FieldError("Delays", "takes 1 to 100 durations");
    const delay = { ...settings.retryPolicy.find(({ name }) => name === "first_seconds"), title: "Delays" };
    const delayOf = (text) => before.delays_seconds?.find((known) => durationText(known) === text.trim());
    return { delays_seconds: delays.map((each) => settingValue(delay, each, delayOf(each))) };
  }
  return valuesOf(settings.retryPolicy, texts, before);
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
    ...valuesOf(targetSettings(), texts, before),
    ...(kind === "https" && before?.kind === "https" ? { secret_version: before.secret_version } : {}),
  };
}

/** Returns the settings that the texts of the form describe. Throws `FieldError`. */
export function settingsOf(texts, group) {
  return {
    ...valuesOf(changeable(group), texts, group),
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
