/**
 * The delayed messages of a span of time, the next due first, each with its acts.
 */

import { get, poll, settings } from "../../api.js";
import { body, visibleLine } from "../../bodies.js";
import { actButton } from "../../dialog.js";
import { h, path, replace, withQuery } from "../../dom.js";
import { bytes, count, time, timeText } from "../../format.js";
import { badge, failure, section } from "../../frame.js";
import { table } from "../../table.js";
import { facts } from "./panels.js";
import { search } from "./scan.js";
import { askCancel, askMove, KINDS } from "./scheduled_message.js";

const EVERY_MS = 5_000;
const PAGE = 50;

/** Returns the section with the messages that are due from `from` on and before `to` (null: whenever), from behind the
 * cursor `after`. `which` chooses some of them: `{key, tag, id}`. `hour` is the address of the whole hour, if this is a
 * minute of it; `following(after)` that of another page. */
export function delayedMessages({ subject, from, to, which, after, signal, hour, following }) {
  const panel = h("div", null);
  const shown = h("div", null);
  const said = h("p", { class: "muted", role: "status" });
  const pager = h("nav", { class: "pager", "aria-label": "Pages of delayed messages" });
  const calls = subject ? path`subjects/${subject}/delayed` : "delayed";
  const until = to && new Date(to).toISOString();
  const asked = { from: new Date(from).toISOString(), to: until, limit: PAGE, bodies: true, ...which };
  const page = { panel, refresh: () => {} };
  const rows = table({
    caption: "Delayed messages",
    columns: columnsOf(subject, page),
    rowKey: (row) => row.scheduled_id,
    empty: "No delayed message is here.",
  });
  const load = async () => {
    const read = (next) => get(calls, { ...asked, after: next }, { signal });
    const { found, next } = await search({ load: read, after: after ?? null });
    rows.update(found);
    said.textContent = found.length || next === null ? "" : "The server has not found one yet: go on with the next page.";
    replace(
      pager,
      after && h("a", { href: following(null) }, "First page"),
      next && h("a", { href: following(next) }, "Next page"),
    );
    if (!rows.node.isConnected) replace(shown, rows.node);
  };
  const onError = (error) => {
    if (!rows.node.isConnected) replace(shown, failure(error, "The list of delayed messages"));
  };
  page.refresh = poll(load, { everyMs: EVERY_MS, signal, onError }).refresh;
  const way = hour && h("p", null, `Of the minute ${timeText(from)}. `, h("a", { href: hour }, "Show the whole hour"));
  return section(to ? "Messages" : "Next messages", way, shown, said, pager, panel);
}

function columnsOf(subject, page) {
  const columns = [
    { key: "deliver_at", label: "Due", render: (row) => time(row.deliver_at, { precise: true }) },
    { key: "id", label: "Message", header: true, render: (row) => opener(row, page) },
    { key: "subject", label: "Subject", render: (row) => h("a", { href: path`#/subjects/${row.subject}` }, row.subject) },
    { key: "key", label: "Key", render: (row) => (row.key === undefined ? "–" : visibleLine(row.key)) },
    { key: "tags", label: "Tags", render: (row) => (row.tags?.length ? row.tags.map(visibleLine).join(", ") : "–") },
    { key: "size", label: "Size", numeric: true, render: (row) => bytes(row.size) },
    { key: "state", label: "State", render: (row) => (row.state ? badge(row.state, KINDS[row.state]) : "–") },
  ];
  const acts = { key: "acts", label: "Acts", render: (row) => actsOf(row, page) };
  return columns.filter((column) => !subject || column.key !== "subject").concat(settings.readOnly ? [] : acts);
}

/** Returns the buttons of a message that can still be changed. */
function actsOf(row, page) {
  if (row.state !== "waiting") return "–";
  return h(
    "div",
    { class: "actions" },
    actButton("Move…", () => askMove(row.scheduled_id, row, page.refresh)),
    actButton("Cancel…", () => askCancel(row.scheduled_id, row, page.refresh), { danger: true }),
  );
}

function nameOf(row) {
  return row.id === undefined ? "cannot be read" : visibleLine(row.id);
}

/** Returns the cell that shows a message below the table, where a refresh of the table changes nothing. */
function opener(row, { panel }) {
  const press = () => {
    const title = h("h3", { tabindex: "-1" }, `Message ${nameOf(row)}`);
    const close = h("button", { type: "button", onclick: () => panel.replaceChildren() }, "Close");
    replace(panel, h("div", { class: "card" }, title, content(row), h("div", { class: "buttons" }, close)));
    title.focus();
  };
  return h("button", { type: "button", class: "link", onclick: press }, nameOf(row));
}

function content(row) {
  const trace = withQuery(path`#/subjects/${row.subject}/trace`, { id: row.scheduled_id });
  const rest = `Only the beginning of the body is shown: the message has ${count(row.size)} bytes in all.`;
  return [
    facts([
      ["Id that the server gave", h("code", null, row.scheduled_id)],
      ["Subject", h("a", { href: path`#/subjects/${row.subject}` }, row.subject)],
      ["Due", time(row.deliver_at, { precise: true })],
      ["Sent", time(row.produced_at, { precise: true })],
      ["Precision", row.precision],
    ]),
    body(row),
    row.shortened && h("p", { class: "note" }, rest),
    h("div", { class: "pager" }, h("a", { href: trace }, "Trace")),
  ];
}
