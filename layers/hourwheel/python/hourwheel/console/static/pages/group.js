/** The page of a group: its lag over time, who works on it, what failed, and the acts on it. */

import { get, poll, settings } from "../api.js";
import { lineChart, updateChart } from "../charts.js";
import { h, replace } from "../dom.js";
import { ago, count, isUtc, millis, time, timeText } from "../format.js";
import { failure, heading, section } from "../frame.js";
import { table } from "../table.js";
import { deletePanel, pauseButton } from "./parts/acts.js";
import { consumersPanel, leasesPanel, progressPanel } from "./parts/consumers.js";
import { shownSetting } from "./parts/declared.js";
import { groupSettings } from "./parts/group_form.js";
import { heldPanel } from "./parts/held.js";
import { record, values } from "./parts/history.js";
import { lastHour } from "./parts/last_hour.js";
import { messagesBelow } from "./parts/offsets.js";
import { badges, facts, numbers, panel } from "./parts/panels.js";
import { browseLink, deadLink, groupPath, subjectLink } from "./parts/paths.js";
import { pushPanel } from "./parts/push.js";
import { retriesPanel } from "./parts/retries.js";
import { purgeButton, seekPanel } from "./parts/seek.js";

const EVERY_MS = 3000;
const overview = ["Overview", "#/"];

const LIMITS = {
  paused: "The group is paused.",
  subject_paused: "The subject is paused.",
  max_in_flight: "As many messages as max_in_flight allows are leased.",
  messages_per_second: "The group takes as many messages per second as it may.",
};

/** Returns the marks of an ordered group that holds keys. A server that does not count stopped keys names some. */
function stoppedBadges(held) {
  if (!held?.keys) return [];
  const stopped = held.stopped ?? held.first.filter((key) => key.stopped).length;
  return [
    ...(stopped ? [[`${count(stopped)} ${stopped === 1 ? "key" : "keys"} stopped`, "bad"]] : []),
    ...(held.keys > stopped ? [[`${count(held.keys - stopped)} held`, "warn"]] : []),
  ];
}

/** Returns the marks of a group: its kind, and what keeps messages from it. */
export function groupBadges(group, lag) {
  return [
    ...(group.paused ? [["paused", "bad"]] : []),
    ...(group.ordered ? [["ordered", null]] : []),
    ...(group.broadcast ? [["broadcast", null]] : []),
    ...(group.push ? [[`push: ${group.push.kind}`, null]] : []),
    ...(group.filter ? [["filter", null]] : []),
    ...stoppedBadges(lag?.held),
    ...(lag?.cells_out?.length ? [["a cell is out of reach", "bad"]] : []),
  ];
}

function lagChart(readings) {
  const series = [
    { name: "waiting", points: values(readings, "waiting") },
    { name: "in flight", points: values(readings, "in_flight") },
    { name: "retrying", points: values(readings, "retrying") },
  ];
  return {
    title: "Lag since this page was opened",
    unit: "count",
    series,
    utc: isUtc(),
    empty: "The first reading is on its way.",
  };
}

function queuesPanel(subject) {
  const own = panel("Queues");
  const next = (row) =>
    // Null: a cell that is out of reach has the message.
    row.offset === null ? count(null) : h("a", { href: browseLink(subject, { by: "offset", queue: row.queue, at: row.offset }) }, count(row.offset));
  const progress = (row) => {
    if (row.offset === null || row.end === null) return "out of reach";
    return h("progress", {
      max: Math.max(messagesBelow(row.end), 1),
      value: messagesBelow(row.offset),
      "aria-label": `progress in queue ${row.queue}`,
    });
  };
  const columns = [
    { key: "queue", label: "Queue", render: (row) => String(row.queue) },
    { key: "offset", label: "Next offset", numeric: true, render: next },
    { key: "end", label: "End", numeric: true, render: (row) => count(row.end) },
    { key: "waiting", label: "Waiting", numeric: true, render: (row) => count(row.waiting) },
    { key: "in_flight", label: "In flight", numeric: true, render: (row) => count(row.in_flight) },
    { key: "progress", label: "Progress", render: progress },
  ];
  const view = table({
    caption: "Progress in each queue",
    columns,
    rows: [],
    rowKey: (row) => String(row.queue),
    empty: "No queue.",
  });
  own.show(view.node);
  return { node: own.node, update: view.update };
}

function summary(subject, group, lag) {
  return [
    numbers([
      ["waiting", count(lag.waiting), "messages that can be pulled for the first time"],
      ["in flight", count(lag.in_flight), "leased messages"],
      ["retrying", count(lag.retrying), "failed messages that can be pulled again"],
      ["backing off", count(lag.backing_off), "failed messages that wait for their delay"],
      ["dead", h("a", { href: deadLink(subject, group.group) }, count(lag.dead)), "dead letters"],
      ["expired unread", count(lag.expired_unread ?? 0), "messages that expired before the group had pulled them"],
      ["oldest", lag.oldest_at ? ago(Date.now() - millis(lag.oldest_at)) : "–", timeText(lag.oldest_at)],
    ]),
    lag.limited_by && h("p", { class: "note warn" }, LIMITS[lag.limited_by]),
    lag.cells_out?.length > 0 &&
      h("p", { class: "note bad" }, `Cells out of reach, whose messages are not counted: ${lag.cells_out.join(", ")}`),
  ];
}

function limitsOf(group) {
  const filter =
    group.filter &&
    Object.entries(group.filter)
      .filter(([, tags]) => tags.length)
      .map(([name, tags]) => `${name}: ${tags.join(", ")}`)
      .join("; ");
  return facts([
    ...settings.groupSettings
      .filter(({ name, fixed, needs }) => !fixed && !needs && group[name] !== undefined)
      .map((declared) => [declared.title.toLowerCase(), shownSetting(declared, group[declared.name])]),
    ["filter", filter || "none"],
    ["created", time(group.created_at)],
  ]);
}

/** Makes the parts of the page, and shows those that have no content yet. */
function layout({ root, subject, name, signal, navigate, refresh }) {
  const path = groupPath(subject, name);
  const page = {
    subject,
    name,
    path,
    signal,
    navigate,
    refresh,
    state: h("span"),
    notice: h("div", { role: "alert" }),
    pause: pauseButton({ name, path, whom: "The group gets", changed: refresh }),
    top: panel("Now"),
    chart: lineChart(lagChart([])),
    hour: lastHour(subject, name, signal),
    queues: queuesPanel(subject),
    consumers: consumersPanel(subject, name, refresh),
    leases: leasesPanel(subject, name),
    retries: retriesPanel(subject, name),
    push: pushPanel(subject, name),
    kind: h("div"),
    limits: panel("Limits"),
    acts: h("div", { class: "forms" }),
  };
  const crumbs = [overview, [subject, subjectLink(subject)]];
  const dead = h("a", { href: deadLink(subject, name), class: "button" }, "Dead letters");
  const actions = [dead, page.pause.node, purgeButton(subject, name, refresh)];
  replace(
    root,
    heading({ title: name, crumbs, badges: page.state, actions }),
    page.notice,
    page.top.node,
    page.hour.node,
    section("Lag", page.chart),
    page.queues.node,
    page.consumers.node,
    page.kind,
    h("div", { class: "columns" }, page.leases.node, page.retries.node, page.push.node, page.limits.node),
    page.acts,
  );
  return page;
}

function showActs(page, group, queues) {
  const { subject, name, signal, refresh, navigate } = page;
  const gone = () => navigate(subjectLink(subject));
  const changed = () => {
    for (const form of page.acts.querySelectorAll("details")) form.open = false;
    refresh();
  };
  const text =
    "Deletes the group with its progress, retries and dead letters. " +
    "The messages of the subject stay. This cannot be undone.";
  replace(
    page.acts,
    seekPanel(subject, name, queues, signal, changed),
    groupSettings(group, signal, changed),
    deletePanel({ kind: "group", name, path: page.path, text, signal, gone }),
  );
}

/** Builds the forms anew when the settings changed, but never under a person who has one of them open. */
function followSettings(page, group, queues) {
  const shown = JSON.stringify([{ ...group, paused: false }, queues]);
  if (settings.readOnly || page.shown === shown || page.acts.querySelector("details[open]")) return;
  page.shown = shown;
  showActs(page, group, queues);
}

/** Shows what only some kinds of groups have: held keys of an ordered one, the consumers of a broadcast one. */
function updateKind(page, group, lag) {
  const make = () =>
    group.ordered ? heldPanel(page.subject, page.name, page.refresh) : group.broadcast ? progressPanel() : null;
  const kind = group.ordered ? "ordered" : group.broadcast ? "broadcast" : "";
  if (page.shownKind !== kind) {
    page.shownKind = kind;
    page.own = make();
    replace(page.kind, page.own?.node);
  }
  if (lag.held) page.own?.update(lag.held);
  else if (group.broadcast) page.own?.update(lag.consumers);
}

function update(page, group, lag) {
  const { subject, name } = page;
  const readings = record(`${subject}/${name}`, {
    at_ms: Date.now(),
    waiting: lag.waiting,
    in_flight: lag.in_flight,
    retrying: lag.retrying + lag.backing_off,
  });
  replace(page.state, badges(groupBadges(group, lag)));
  page.pause.update(group.paused);
  page.top.show(...summary(subject, group, lag));
  updateChart(page.chart, lagChart(readings));
  page.queues.update(lag.queues);
  updateKind(page, group, lag);
  page.limits.show(limitsOf(group));
  followSettings(page, group, lag.queues.length);
}

async function load(page) {
  const { path, signal, consumers, leases, retries, push, hour } = page;
  const [group, lag] = await Promise.all([get(path, null, { signal }), get(`${path}/lag`, null, { signal })]);
  if (signal.aborted) return;
  replace(page.notice);
  update(page, group, lag);
  await Promise.all([consumers.load(), leases.load(), retries.load(), push.load(group.push), hour.load()]);
}

export async function show({ root, params, signal, navigate }) {
  let reading = null;
  const refresh = () => reading?.refresh();
  const page = layout({ root, subject: params.subject, name: params.group, signal, navigate, refresh });
  const onError = (error) => replace(page.notice, failure(error, "This group"));
  reading = poll(() => load(page), { everyMs: EVERY_MS, signal, onError });
}
