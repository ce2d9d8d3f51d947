/**
 * Delayed messages: when they are due, those of an hour one by one, one of them by its id, and the wheels that hand
 * them over.
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
  const address = (changes) => withQuery("#/delayed", { subject: query.subject, ...changes });
  replace(
    root,
    heading({ title: "Delayed messages", crumbs: [["Overview", "#/"]] }),
    choice(query, navigate),
    dueChart({ query, signal, navigate, address }),
    messagesOf({ query, signal, address }),
    lookUp({ id: query.id, signal, navigate, address }),
    !query.subject && delayedSubjects({ signal }),
    wheels({ signal }),
  );
}

/** Returns the field that narrows the chart to one subject. */
function choice(query, navigate) {
  const field = h("input", { type: "search", name: "subject", value: query.subject ?? "", size: "32" });
  const button = h("button", { type: "submit" }, "Show");
  const form = h("form", { class: "filters" }, h("label", null, "Subject (all if empty)", field), button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    navigate(withQuery("#/delayed", { subject: field.value.trim() }));
  });
  return form;
}

/** Returns the list of the hour, or minute, that the page shows; null while it shows a longer span. */
function messagesOf({ query, signal, address }) {
  const span = spanOf(query, Date.now(), isUtc());
  if (span.level !== "hour") return null;
  const minute = minuteOf(query, span);
  const [from, to] = minute ?? [span.from, span.to];
  const here = { level: span.level, at: span.from };
  return delayedMessages({
    subject: query.subject,
    from,
    to,
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
