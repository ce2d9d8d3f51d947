/** The page of a subject: its queues, its groups side by side, and the acts on it. */

import { get, poll, settings } from "../api.js";
import { lineChart, updateChart } from "../charts.js";
import { h, path, replace } from "../dom.js";
import { ago, bytes, count, duration, isUtc, millis, rate, time } from "../format.js";
import { failure, heading, section } from "../frame.js";
import { table } from "../table.js";
import { deletePanel, pauseButton } from "./parts/acts.js";
import { newGroup } from "./parts/group_form.js";
import { rates, record } from "./parts/history.js";
import { hourReader, waitingLines } from "./parts/last_hour.js";
import { messagesBelow, progressOf } from "./parts/offsets.js";
import { badges, numbers, panel } from "./parts/panels.js";
import { browseLink, deadLink, delayedLink, groupLink, subjectPath } from "./parts/paths.js";
import { queuesPanel } from "./parts/queues.js";
import { sendPanel } from "./parts/send.js";
import { subjectSettings } from "./parts/settings.js";

const EVERY_MS = 3000;

/** Returns the sum of a number over the queues that know it; null where none does. */
export function total(queues, number) {
  const known = queues.map(number).filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

function groupBadges(group) {
  return [
    ...(group.paused ? [["paused", "bad"]] : []),
    ...(group.ordered ? [["ordered", null]] : []),
    ...(group.broadcast ? [["broadcast", null]] : []),
    ...(group.pushed ? [["push", null]] : []),
    ...(group.stopped ? [[`${count(group.stopped)} ${group.stopped === 1 ? "key" : "keys"} stopped`, "bad"]] : []),
    ...(group.held > group.stopped ? [[`${count(group.held - group.stopped)} held`, "warn"]] : []),
    ...(group.complete ? [] : [["counts may be too low", "warn"]]),
  ];
}

function progressBar(row) {
  if (row.progress === null) return "–";
  const title = `${(row.progress * 100).toFixed(1)} % of the messages were pulled`;
  return h("progress", { max: 1, value: row.progress, "aria-label": `progress of ${row.group}`, title });
}

function groupsPanel(subject) {
  const own = panel("Groups");
  const number = (key, label) => ({ key, label, numeric: true, render: (row) => count(row[key]) });
  const age = (row) => (row.oldest_at ? ago(Date.now() - millis(row.oldest_at)) : "–");
  const columns = [
    { key: "group", label: "Group", render: (row) => h("a", { href: groupLink(subject, row.group) }, row.group) },
    number("waiting", "Waiting"),
    number("in_flight", "In flight"),
    number("retrying", "Retrying"),
    number("backing_off", "Backing off"),
    {
      key: "dead",
      label: "Dead",
      numeric: true,
      render: (row) => h("a", { href: deadLink(subject, row.group) }, count(row.dead)),
    },
    number("expired_unread", "Expired unread"),
    { key: "oldest_at", label: "Oldest", render: age },
    { key: "hour", label: "Waiting, last hour", title: "All lines have one scale", render: (row) => row.line },
    { key: "progress", label: "Progress", render: progressBar },
    { key: "state", label: "State", render: (row) => badges(groupBadges(row)) },
  ];
  const empty = "No group: nobody receives these messages yet.";
  const view = table({ caption: "Groups side by side", columns, rows: [], rowKey: (row) => row.group, empty });
  own.show(view.node);
  const update = ({ groups, queues }, hour) => {
    const line = waitingLines(hour);
    view.update(groups.map((group) => ({ ...group, progress: progressOf(group, queues), line: line(group.group) })));
  };
  return { node: own.node, update };
}

function rateChart(readings) {
  const series = [{ name: "produced", points: rates(readings, "end") }];
  return {
    title: "Produced per second since this page was opened",
    unit: "per_second",
    series,
    utc: isUtc(),
    empty: "The first rate comes with the second reading.",
  };
}

function summary(subject, overview) {
  const { queues } = overview;
  const kept = total(queues, (queue) => queue.messages);
  const perSecond = total(queues, (queue) => queue.produced_per_second);
  const size = total(queues, (queue) => queue.bytes);
  return [
    numbers([
      ["produced per second", rate(perSecond), "mean of the last minute"],
      ["messages kept", count(kept)],
      ["size, about", bytes(size), "before compression"],
      ["delayed", h("a", { href: delayedLink(subject.subject) }, count(overview.delayed))],
      ["retention", duration(subject.retention_seconds * 1000)],
    ]),
    h("p", { class: "small" }, "Created ", time(subject.created_at), "."),
    overview.cells_out.length > 0 &&
      h("p", { class: "note bad" }, `Cells out of reach: ${overview.cells_out.join(", ")}`),
  ];
}

function subjectBadges(subject) {
  return [
    ...(subject.paused ? [["paused", "bad"]] : []),
    ...(subject.read_only ? [["read-only", "warn"]] : []),
    ...(subject.clamp_delays ? [["clamps delays", null]] : []),
  ];
}

function layout({ root, name, signal, navigate, refresh }) {
  const where = subjectPath(name);
  const pause = pauseButton({
    name,
    path: where,
    whom: "Its groups, but those that were paused themselves, get",
    changed: refresh,
  });
  const page = {
    name,
    path: where,
    signal,
    navigate,
    refresh,
    pause,
    after: "",
    hour: hourReader(name, { signal }),
    state: h("span"),
    notice: h("div", { role: "alert" }),
    top: panel("Now"),
    chart: lineChart(rateChart([])),
    groups: groupsPanel(name),
    pages: h("div", { class: "actions" }),
    queues: queuesPanel(name),
    acts: h("div", { class: "forms" }),
  };
  const link = (text, href) => h("a", { href, class: "button" }, text);
  const actions = [link("Messages", browseLink(name)), link("Delayed", delayedLink(name)), pause.node];
  const head = heading({ title: name, crumbs: [["Overview", "#/"]], badges: page.state, actions });
  const chart = section("Produced per second", page.chart);
  replace(root, head, page.notice, page.top.node, page.groups.node, page.pages, chart, page.queues.node, page.acts);
  return page;
}

function showActs(page, subject) {
  const { name, signal, navigate, refresh } = page;
  const changed = () => {
    for (const form of page.acts.querySelectorAll("details")) form.open = false;
    refresh();
  };
  const text =
    "Deletes the subject with all of its messages, groups, retries and dead letters. " +
    "Its delayed messages become dead letters at their time. This cannot be undone.";
  replace(
    page.acts,
    sendPanel(name, signal),
    newGroup(name, signal, (group) => navigate(groupLink(name, group))),
    subjectSettings(subject, signal, changed),
    deletePanel({ kind: "subject", name, path: page.path, text, signal, gone: () => navigate("#/") }),
  );
}

/** Builds the forms anew when the settings changed, but never under a person who has one of them open. */
function followSettings(page, subject) {
  const { queues, retention_seconds, clamp_delays, read_only } = subject;
  const shown = JSON.stringify([queues, retention_seconds, clamp_delays, read_only]);
  if (settings.readOnly || page.shown === shown || page.acts.querySelector("details[open]")) return;
  page.shown = shown;
  showActs(page, subject);
}

/** Shows the way to the next hundred groups, and back to the first. */
function followPages(page, overview) {
  const key = `${page.after} ${overview.next}`;
  if (page.paged === key) return;
  page.paged = key;
  const turn = (after) => () => {
    page.after = after;
    page.refresh();
  };
  const button = (label, after) => h("button", { type: "button", onclick: turn(after) }, label);
  replace(page.pages, page.after && button("First groups", ""), overview.next && button("More groups", overview.next));
}

async function loadNumbers(page, subject) {
  const [overview, routes, hour] = await Promise.all([
    get(`${page.path}/overview`, { after: page.after }, page),
    get(path`routes/${page.name}`, null, page),
    page.hour(page.after),
  ]);
  if (page.signal.aborted) return;
  const ends = total(overview.queues, (queue) => (queue.end === null ? null : messagesBelow(queue.end)));
  const readings = ends === null ? [] : record(page.name, { at_ms: millis(overview.at), end: ends });
  page.top.show(...summary(subject, overview));
  page.groups.update(overview, hour);
  followPages(page, overview);
  page.queues.update(overview, routes);
  updateChart(page.chart, rateChart(readings));
}

async function load(page) {
  const subject = await get(page.path);
  if (page.signal.aborted) return;
  replace(page.notice);
  replace(page.state, badges(subjectBadges(subject)));
  page.pause.update(subject.paused);
  followSettings(page, subject);
  await page.top.guard(() => loadNumbers(page, subject))();
}

export async function show({ root, params, signal, navigate }) {
  let reading = null;
  const refresh = () => reading?.refresh();
  const page = layout({ root, name: params.subject, signal, navigate, refresh });
  const onError = (error) => replace(page.notice, failure(error, "This subject"));
  reading = poll(() => load(page), { everyMs: EVERY_MS, signal, onError });
}
