/**
 * Delayed messages: the next ones first, chosen by subject, key, tag and id; when they are due; and, folded away, the
 * wheels that hand them over.
 */

import { get, poll } from "../api.js";
import { barChart, updateChart } from "../charts.js";
import { h, replace, withQuery } from "../dom.js";
import { count, isUtc, timeText } from "../format.js";
import { failure, heading, section } from "../frame.js";
import { delayedMessages } from "./parts/delayed_messages.js";
import { delayedSubjects } from "./parts/delayed_subjects.js";
import { askedFor, barsOf, minuteOf, spanOf } from "./parts/due_spans.js";
import { lookUp } from "./parts/scheduled_message.js";
import { wheels } from "./parts/wheels.js";

const EVERY_MS = 5_000;
const INCOMPLETE = " The server has not counted all of it yet: the numbers are estimates.";

export async function show({ root, query, signal, navigate }) {
  const { subject, key, tag, sent } = query;
  const address = (changes) => withQuery("#/delayed", { subject, key, tag, sent, ...changes });
  replace(
    root,
    heading({ title: "Delayed messages", crumbs: [["Overview", "#/"]] }),
    choice(query, navigate),
    messagesOf({ query, signal, address }),
    dueChart({ query, signal, navigate, address }),
    lookUp({ id: query.id, signal, navigate, address }),
    !subject && delayedSubjects({ signal }),
    folded(() => wheels({ signal })),
  );
}

const FIELDS = [
  ["subject", "Subject (all if empty)", "24"],
  ["key", "Key", "18"],
  ["tag", "Tag", "12"],
  ["sent", "Id that the sender gave", "20"],
];

/** Returns the fields that choose messages. The chart counts those of the subject, whatever their keys and tags. */
function choice(query, navigate) {
  const fields = FIELDS.map(([name, label, size]) => [name, label, h("input", { type: "search", name, value: query[name] ?? "", size, autocomplete: "off" })]);
  const button = h("button", { type: "submit" }, "Show");
  const form = h("form", { class: "filters" }, fields.map(([, label, field]) => h("label", null, label, field)), button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { level, at } = query;
    const chosen = fields.map(([name, , field]) => [name, name === "subject" ? field.value.trim() : field.value]);
    navigate(withQuery("#/delayed", { ...Object.fromEntries(chosen), level, at }));
  });
  return form;
}

/** Returns a section that reads nothing until a person opens it. A wheel that is overdue is on the overview. */
function folded(content) {
  const box = h("details", { class: "folded" }, h("summary", null, "Wheels: who hands the messages over, and how late they were"));
  box.addEventListener("toggle", () => box.open && box.children.length === 1 && box.append(content()));
  return box;
}

/** Returns the list of the span that the page shows: at first the next messages, whenever they are due. */
function messagesOf({ query, signal, address }) {
  const span = spanOf(query, Date.now(), isUtc());
  const minute = minuteOf(query, span);
  const [from, to] = minute ?? [span.from, span.level === "years" ? null : span.to];
  const here = span.level === "years" ? {} : { level: span.level, at: span.from };
  return delayedMessages({
    subject: query.subject,
    from,
    to,
    which: { key: query.key, tag: query.tag, id: query.sent },
    after: query.after,
    signal,
    hour: minute && address(here),
    following: (after) => address({ ...here, minute: minute?.[0], after }),
  });
}

function dueChart({ query, signal, navigate, address }) {
  const ways = h("nav", { "aria-label": "Span of the chart", class: "crumbs" });
  const said = h("p", { class: "muted" });
  const shown = h("div", null);
  let chart = null;

  async function load() {
    const span = spanOf(query, Date.now(), isUtc());
    const asked = askedFor(span, Date.now());
    const subject = query.subject;
    const found = asked ? await get("scheduled", { subject, ...asked }, { signal }) : { steps: [], complete: true };
    replace(ways, h("ol", null, span.ways.map((way, index) => wayOf(way, index === span.ways.length - 1, address))));
    const bars = barsOf(span, found.steps, isUtc());
    const options = optionsOf(span, bars, navigate, address);
    if (chart) updateChart(chart, options);
    else replace(shown, (chart = barChart(options)));
    const total = bars.reduce((sum, bar) => sum + bar.value, 0);
    const sentence = `${count(total)} ${total === 1 ? "message is" : "messages are"} due in this span.`;
    said.textContent = sentence + nextOf(span, found.steps) + (found.complete ? "" : INCOMPLETE);
  }

  const polled = poll(load, {
    everyMs: EVERY_MS,
    signal,
    onError: (error) => {
      if (!chart) replace(shown, failure(error, "The chart of delayed messages"));
    },
  });
  document.addEventListener("zonechange", polled.refresh, { signal });
  return section("Due", ways, shown, said);
}

/** Returns when the next message is due, where the span is all the time ahead. */
function nextOf({ level }, steps) {
  if (level !== "years" || !steps.length) return "";
  return ` The next is due in the hour of ${timeText(steps[0].at)}.`;
}

function wayOf(way, isHere, address) {
  const at = way.level === "years" ? {} : { level: way.level, at: way.at };
  if (isHere) return h("li", null, h("span", { "aria-current": "true" }, way.text));
  return h("li", null, h("a", { href: address(at) }, way.text));
}

function optionsOf(span, bars, navigate, address) {
  const open = (bar) => {
    const at = Math.max(bar.at, span.from);
    navigate(address(span.opens ? { level: span.opens, at } : { level: span.level, at: span.from, minute: at }));
  };
  return {
    title: `Messages due by ${span.bar}`,
    name: "due",
    bars,
    from: span.from,
    to: span.to,
    utc: isUtc(),
    onSelect: open,
    selectText: `show the ${span.bar}`,
  };
}
