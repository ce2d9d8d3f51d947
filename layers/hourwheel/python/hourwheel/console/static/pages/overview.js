/**
 * What needs attention, then all subjects with their rates and their messages: a hundred at a time, sorted and searched
 * by the server.
 */

import { get, isTrouble, poll, settings, usage } from "../api.js";
import { sparkline } from "../charts.js";
import { h, path, replace, withQuery } from "../dom.js";
import { ago, count, duration, millis, rate, time } from "../format.js";
import { badge, failure, heading } from "../frame.js";
import { table } from "../table.js";
import { attention } from "./parts/attention.js";
import { hourlyUsd, pointsOf, ratesOf, remember } from "./parts/rates.js";

const PAGE = 100;
const EVERY_MS = 2_000;
const TYPING_MS = 250;
const OLD_MS = 60_000; // numbers that were read longer ago are marked

function name(row) {
  const marks = [
    row.paused && badge("paused", "warn", "The subject hands out no messages"),
    row.read_only && badge("read-only", "", "New messages are refused"),
    row.stopped > 0 && badge(`${count(row.stopped)} ${row.stopped === 1 ? "key" : "keys"} stopped`, "bad", "Keys of ordered groups that wait for a decision"),
    row.held > row.stopped && badge(`${count(row.held - row.stopped)} held`, "warn", "Keys of ordered groups whose first message failed, and is retried"),
    row.cells_out?.length > 0 && badge("cell out of reach", "bad", row.cells_out.join(", ")),
  ];
  return [h("a", { href: `#/${path`subjects/${row.subject}`}` }, row.subject), " ", marks];
}

/** Returns whether the count stopped at a limit. Older servers say only that one of the numbers did. */
function isInexact(row, key) {
  return row.inexact ? row.inexact.includes(key) : row.complete === false;
}

/** Returns a count; one that stopped at a limit is marked. */
function number(row, key) {
  const text = count(row[key]);
  if (isInexact(row, key)) return h("span", { title: "At least this many: the count stopped at a limit" }, `≥ ${text}`);
  return row[key] === 0 ? h("span", { class: "zero" }, text) : text;
}

function dead(row) {
  return row.dead > 0 ? h("span", { class: "bad-text" }, number(row, "dead")) : number(row, "dead");
}

function oldest(row) {
  const atMs = millis(row.oldest_at);
  if (Number.isNaN(atMs)) return "–";
  const node = h("span", null, duration(Math.max(0, millis(row.at) - atMs)));
  node.title = `sent ${new Date(atMs).toISOString()}`;
  return node;
}

function columns(scale) {
  const sortable = !settings.aws;
  const numbers = [
    { key: "waiting", label: "Waiting", render: (row) => number(row, "waiting") },
    { key: "oldest", label: "Oldest", render: oldest, title: "How long ago the oldest message was sent that waits" },
    { key: "in_flight", label: "In flight", render: (row) => number(row, "in_flight") },
    { key: "retrying", label: "Retrying", render: (row) => number(row, "retrying") },
    { key: "dead", label: "Dead", render: dead },
    { key: "delayed", label: "Delayed", render: (row) => number(row, "delayed") },
  ];
  const rates = [
    { key: "in", label: "In/s", numeric: true, title: "Messages accepted in a second", render: (row) => rate(ratesOf(pointsOf(row.subject)).produced) },
    { key: "out", label: "Out/s", numeric: true, title: "Messages that groups took in a second", render: (row) => rate(ratesOf(pointsOf(row.subject)).pulled) },
    { key: "trend", label: "Last minutes", title: "Messages accepted in a second; all lines have one scale", render: (row) => trend(row, scale) },
  ];
  return [
    { key: "name", label: "Subject", sortable: true, header: true, render: name },
    ...rates,
    ...numbers.map((column) => ({ ...column, numeric: true, sortable })),
    { key: "groups", label: "Groups", numeric: true, render: (row) => count(row.groups) },
  ];
}

function trend(row, { top }) {
  const values = ratesOf(pointsOf(row.subject)).trend;
  return values.length > 1 ? sparkline(values, { label: "Messages accepted", unit: "per_second", top }) : "–";
}

function cost() {
  const usd = hourlyUsd(usage, Date.now(), settings);
  if (usd === null) return "What an open page costs is shown here after half a minute.";
  const text = usd < 0.01 ? usd.toPrecision(2) : usd.toFixed(2);
  return `At the rate of its ${count(usage.calls)} calls so far this page costs about $${text} an hour while it is open, and nothing while its tab is hidden.`;
}

export async function show({ root, query, signal, navigate }) {
  const state = {
    prefix: query.prefix ?? "",
    sort: query.sort ?? "name",
    order: query.order ?? "asc",
    after: query.after ?? "",
    before: [],
  };
  const scale = { top: 0 };
  let version = 0;
  let next = null;

  const field = h("input", { type: "search", value: state.prefix, autocomplete: "off", spellcheck: "false", placeholder: "Names that begin with …" });
  const status = h("p", { class: "small muted" });
  const problem = h("div", { hidden: true });
  const bill = h("p", { class: "small muted" });
  const back = h("button", { type: "button", onclick: () => turn(() => (state.after = state.before.pop() ?? "")) }, "Previous page");
  const forth = h("button", { type: "button", onclick: () => turn(goOn) }, "Next page");
  const empty = h("div", null);
  const rows = table({
    caption: "Subjects",
    columns: columns(scale),
    rowKey: (row) => row.subject,
    empty,
    sort: { key: state.sort, order: state.order },
    onSort: (key, order) => turn(() => Object.assign(state, { sort: key, order, after: "", before: [] })),
  });
  let haveRows;
  const first = new Promise((resolve) => (haveRows = resolve));
  replace(
    root,
    heading({ title: "Overview" }),
    attention({ signal, first }),
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, h("label", null, "Search subjects", field)),
    problem,
    rows.node,
    h("div", { class: "pager" }, back, forth, status),
    settings.aws && bill,
  );
  rows.node.hidden = true;
  back.disabled = forth.disabled = true;
  if (query.search) field.focus();

  function goOn() {
    state.before.push(state.after);
    state.after = next;
  }

  /** Changes what is shown, and reads it. Answers to earlier questions are dropped. */
  function turn(change) {
    change();
    version += 1;
    back.disabled = forth.disabled = true;
    const { prefix, sort, order, after } = state;
    navigate(withQuery("#/", { prefix, sort: sort === "name" && order === "asc" ? "" : sort, order: order === "asc" ? "" : order, after }), {
      replace: true,
    });
    reading.refresh();
  }

  async function load() {
    const asked = version;
    const { prefix, sort, order, after } = state;
    const sorting = settings.aws ? {} : { sort, order };
    const answer = await get("overview", { limit: PAGE, prefix, after, ...sorting }, { signal });
    usage.items += answer.subjects.reduce((sum, row) => sum + 1 + row.groups, 0);
    if (asked !== version) return;
    answer.subjects.forEach(remember);
    scale.top = Math.max(0, ...answer.subjects.flatMap((row) => ratesOf(pointsOf(row.subject)).trend));
    next = answer.next;
    rows.node.hidden = false;
    haveRows(); // numbers of subjects come first: what needs attention takes longer to read
    replace(empty, nothing());
    rows.update(answer.subjects, { sort: { key: sort, order } });
    back.disabled = !state.after;
    forth.disabled = !next;
    replace(status, said(answer));
    problem.hidden = true;
    bill.textContent = cost();
  }

  function nothing() {
    if (state.prefix) return `No subject has a name that begins with “${state.prefix}”.`;
    return "There is no subject yet: the first message that is sent to one creates it.";
  }

  function said(answer) {
    const shown = `${count(answer.subjects.length)} subjects${state.before.length || next ? ` on page ${state.before.length + 1}` : ""}, `;
    const age = Math.max(0, ...answer.subjects.map((row) => millis(answer.at) - millis(row.at)));
    return [
      shown,
      "read at ",
      time(answer.at),
      age > OLD_MS && `; the oldest numbers are from ${ago(age)}`,
      answer.complete === false && "; the server has not read every subject yet",
      ".",
    ];
  }

  let typing = 0;
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => turn(() => Object.assign(state, { prefix: field.value.trim(), after: "", before: [] })), TYPING_MS);
  });
  signal.addEventListener("abort", () => clearTimeout(typing));

  const reading = poll(load, {
    everyMs: EVERY_MS,
    signal,
    onError: (error) => {
      haveRows();
      problem.hidden = isTrouble(error) && !rows.node.hidden; // the banner tells it, and the last numbers stay
      replace(problem, failure(error, "The overview"));
    },
  });
}
