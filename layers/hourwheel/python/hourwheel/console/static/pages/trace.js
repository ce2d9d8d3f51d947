/**
 * The way of one message: where it is, and what each group did with it.
 */

import { get } from "../api.js";
import { body, visibleLine } from "../bodies.js";
import { h, path, replace, withQuery } from "../dom.js";
import { duration, isUtc, millis, time } from "../format.js";
import { badge, failure, heading, section } from "../frame.js";
import { timelineOf } from "./parts/trace_events.js";

const STATES = {
  waiting: ["", "is yet to be pulled"],
  in_flight: ["", "is leased to a consumer"],
  retrying: ["warn", "can be pulled again"],
  backing_off: ["warn", "waits for the delay of its retry"],
  stopped: ["bad", "waits for a decision: its key is stopped"],
  acknowledged: ["good", "is done"],
  dead: ["bad", "is a dead letter"],
  dropped: ["bad", "was a dead letter, and was dropped"],
  filtered: ["", "was left out by the filter of the group"],
  skipped: ["", "was passed by a seek"],
  before_start: ["", "is older than the start of the group"],
  unreadable: ["bad", "could not be read when it was pulled"],
  settled: ["good", "is done; the details are no longer kept"],
  expired: ["warn", "expired in a log of the group"],
  unknown: ["warn", "went on in a log that is no longer kept"],
};

const MISSING = "Events may be missing: parts of the logs are no longer kept, or were searched only.";

export async function show({ root, params, query, signal, navigate }) {
  const { subject } = params;
  const crumbs = [["Overview", "#/"], [subject, path`#/subjects/${subject}`]];
  const shown = h("div", { role: "status" });
  replace(root, heading({ title: "Trace of a message", crumbs }), search(subject, query, navigate), shown);
  if (query.id) await follow({ subject, query, signal, shown, after: undefined });
}

function search(subject, query, navigate) {
  const typed = { type: "search", name: "id", size: "40", required: true, autocomplete: "off" };
  const id = h("input", { ...typed, value: query.id ?? "" });
  const group = h("input", { type: "text", name: "group", value: query.group ?? "", size: "16" });
  const from = h("input", { type: "datetime-local", step: "1", name: "from", value: local(query.from) });
  const to = h("input", { type: "datetime-local", step: "1", name: "to", value: local(query.to) });
  const zone = isUtc() ? "UTC" : "local time";
  const form = h(
    "form",
    { class: "filters" },
    h("label", null, "Id, scheduled_id, or queue:offset", id),
    h("label", null, "Group (all if empty)", group),
    h("label", null, `From (${zone})`, from),
    h("label", null, "To", to),
    h("button", { type: "submit" }, "Trace"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const asked = { id: id.value.trim(), group: group.value.trim(), from: instant(from.value), to: instant(to.value) };
    navigate(withQuery(path`#/subjects/${subject}/trace`, asked));
  });
  const hint = "An id that its sender chose needs a time to search from; one that the server gave contains its time.";
  return h("div", null, form, h("p", { class: "muted small" }, hint));
}

/** Returns the value of a field of a time: in the zone of the page, without it. */
function local(value) {
  const at = millis(value);
  if (Number.isNaN(at)) return "";
  const offset = isUtc() ? 0 : new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - offset).toISOString().slice(0, 19);
}

function instant(value) {
  if (!value) return "";
  return new Date(isUtc() ? `${value}Z` : value).toISOString();
}

/** Adds the traces that the next call finds, and a button that searches on where the call stopped before the end. */
async function follow({ subject, query, signal, shown, after }) {
  const { id, group, from, to } = query;
  try {
    const found = await get(path`subjects/${subject}/messages/${id}`, { group, from, to, after }, { signal });
    for (const message of found.messages) shown.append(traceOf(message, subject));
    if (!found.next) {
      if (!shown.hasChildNodes()) shown.append(h("p", { class: "note" }, "No message was found."));
      return;
    }
    const more = h("button", { type: "button" }, found.messages.length ? "Search for more" : "Nothing yet: search on");
    more.addEventListener("click", () => {
      more.remove();
      follow({ subject, query, signal, shown, after: found.next });
    });
    shown.append(more);
  } catch (error) {
    if (!signal.aborted) shown.append(failed(error));
  }
}

function failed(error) {
  const title = {
    "message-unknown": "The message is unknown, or no longer kept.",
    "offset-unknown": "No message has this offset yet.",
  }[error.type];
  if (title === undefined) return failure(error, "The trace");
  return h("div", { class: "note warn" }, h("p", null, h("strong", null, title), ` ${error.detail ?? ""}`));
}

function traceOf(found, subject) {
  const isPlaced = found.queue !== undefined;
  const browse = withQuery(path`#/subjects/${subject}/browse`, { queue: found.queue, offset: found.offset });
  const scheduled = withQuery("#/delayed", { subject, id: found.scheduled_id });
  const title = `Message ${visibleLine(found.id)}`;
  const damaged = found.damaged && h("p", { class: "note bad" }, `The body cannot be read: ${found.damaged}`);
  return section(
    title,
    h(
      "dl",
      { class: "facts" },
      fact("State", found.state),
      isPlaced && fact("Queue and offset", h("a", { href: browse }, `${found.queue}:${found.offset}`)),
      found.scheduled_id && fact("Delayed", h("a", { href: scheduled }, "look up, cancel or move")),
      found.message?.key !== undefined && fact("Key", visibleLine(found.message.key)),
      found.message?.tags?.length > 0 && fact("Tags", found.message.tags.map((tag) => badge(visibleLine(tag)))),
      Object.entries(found.message?.headers ?? {}).map(([name, value]) =>
        fact(`Header ${visibleLine(name)}`, visibleLine(value)),
      ),
    ),
    found.message ? body(found.message) : damaged,
    h("div", { class: "columns" }, timelines(found, subject)),
    found.more_groups && h("p", { class: "muted" }, "The subject has more groups: name one above to see what it did."),
  );
}

function fact(name, ...values) {
  return [h("dt", null, name), h("dd", null, values)];
}

function timelines(found, subject) {
  const own = timelineOf(found, null, subject);
  const lists = [h("div", { class: "card" }, h("h3", null, "The message"), events(own))];
  for (const group of found.groups ?? []) {
    const [kind, text] = STATES[group.state] ?? ["", ""];
    const name = group.consumer ? `${group.group}, consumer ${visibleLine(group.consumer)}` : group.group;
    lists.push(
      h(
        "div",
        { class: "card" },
        h("h3", null, name, " ", badge(group.state, kind)),
        text && h("p", { class: "muted" }, `The message ${text}.`),
        events(timelineOf(found, group, subject)),
        !group.complete && h("p", { class: "note warn" }, MISSING),
      ),
    );
  }
  return lists;
}

/** Returns the events as a list, each with the time since the one before it. */
function events(list) {
  if (!list.length) return h("p", { class: "muted" }, "Nothing has happened yet.");
  let before = NaN;
  const items = list.map(({ at, text, kind, link }) => {
    const since = millis(at) - before;
    if (at) before = millis(at);
    const later = since >= 0 && h("span", { class: "muted" }, ` +${duration(since)}`);
    const when = h("span", { class: "when" }, at ? time(at, { precise: true }) : "time not kept", later);
    const what = h("span", null, text, link && [" ", h("a", { href: link.href }, link.text)]);
    return h("li", { class: kind ?? null }, when, what);
  });
  return h("ol", { class: "timeline" }, items);
}
