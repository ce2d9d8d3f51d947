/**
 * The dead letters of a group: by reason, one by one with their bodies, and redriven or dropped.
 */

import { get, poll } from "../api.js";
import { body, visibleLine } from "../bodies.js";
import { actButton } from "../dialog.js";
import { h, path, replace, withQuery } from "../dom.js";
import { count, time } from "../format.js";
import { badge, failure, heading, section } from "../frame.js";
import { table } from "../table.js";
import { askAll, askThese } from "./parts/dead_acts.js";

const EVERY_MS = 10_000;
const PAGE = 50;
const NAMES = { attempts: "attempts used up", rejected: "rejected" };

export async function show({ root, params, query, signal, navigate }) {
  const { subject, group } = params;
  const page = {
    subject,
    group,
    query,
    signal,
    navigate,
    calls: path`subjects/${subject}/groups/${group}/dead`,
    address: (changes) => withQuery(path`#/subjects/${subject}/groups/${group}/dead`, { order: query.order, ...changes }),
    filter: { reason: query.reason, detail: query.detail },
    isOldest: query.order === "oldest",
    selected: new Set(),
    refresh: () => {},
  };
  const crumbs = [
    ["Overview", "#/"],
    [subject, path`#/subjects/${subject}`],
    [group, path`#/subjects/${subject}/groups/${group}`],
  ];
  const reasons = reasonTable(page);
  const letters = letterTable(page);
  replace(
    root,
    heading({
      title: "Dead letters",
      crumbs,
      actions: bulkButtons(page),
      lead: "Messages that the group gave up. They are kept for 30 days.",
    }),
    reasons.node,
    letters.node,
  );
  const load = () => Promise.all([reasons.load(), letters.load()]);
  const polled = poll(load, { everyMs: EVERY_MS, signal });
  page.refresh = polled.refresh;
}

function bulkButtons(page) {
  const what = page.filter.reason ? "all of this reason" : "all";
  return [
    actButton(`Redrive ${what}`, () => askAll(page, "redrive")),
    actButton(`Drop ${what}`, () => askAll(page, "drop"), { danger: true }),
  ];
}

/** Returns the name of a reason for people. */
function nameOf(reason) {
  return NAMES[reason] ?? visibleLine(String(reason));
}

function saidBy(row) {
  return row.detail ? visibleLine(row.detail) : "–";
}

function reasonTable(page) {
  const rows = table({
    caption: "Dead letters by reason",
    columns: [
      { key: "reason", label: "Reason", render: (row) => reasonLink(row, page) },
      { key: "detail", label: "What the consumer said", render: saidBy },
      { key: "messages", label: "Messages", numeric: true, render: (row) => count(row.messages) },
      { key: "first_at", label: "First", render: (row) => time(row.first_at) },
      { key: "last_at", label: "Last", render: (row) => time(row.last_at) },
    ],
    rowKey: (row) => JSON.stringify([row.reason, row.detail ?? null]),
    empty: "The group has no dead letters.",
  });
  const said = h("p", { class: "muted" });
  const shown = h("div", null);
  const load = async () => {
    try {
      const found = await get(`${page.calls}/reasons`, {}, { signal: page.signal });
      rows.update(found.reasons);
      const others = found.others ? `${count(found.others)} more have other reasons. ` : "";
      said.textContent = others + (found.complete ? "" : "The server stopped counting at its limit: there are more.");
      if (!rows.node.isConnected) replace(shown, rows.node);
    } catch (error) {
      if (!page.signal.aborted && !rows.node.isConnected) replace(shown, failure(error, "The list of reasons"));
      if (!error.isMissingCall) throw error; // the letters are shown without their reasons
    }
  };
  return { node: section("Reasons", shown, said), load };
}

/** Returns the link that filters the page. A reason without a detail stands for all letters of the reason. */
function reasonLink({ reason, detail }, page) {
  const isChosen = page.filter.reason === reason && (page.filter.detail ?? "") === (detail ?? "");
  if (!isChosen) return h("a", { href: page.address({ reason, detail }) }, nameOf(reason));
  return h("a", { href: page.address({}), "aria-current": "true" }, `${nameOf(reason)} (shown; show all)`);
}

function letterTable(page) {
  const panel = h("div", null);
  const rows = table({
    caption: "Dead letters",
    columns: [
      { key: "chosen", label: "Chosen", render: (row) => checkbox(row, page, update) },
      { key: "id", label: "Message", header: true, render: (row) => letterHead(row, page, panel) },
      { key: "died_at", label: "Given up", render: (row) => time(row.died_at) },
      { key: "reason", label: "Reason", render: (row) => nameOf(row.reason) },
      { key: "detail", label: "What the consumer said", render: saidBy },
      { key: "key", label: "Key", render: (row) => (row.key === undefined ? "–" : visibleLine(row.key)) },
    ],
    rowKey: (row) => row.dead_id,
    empty: page.filter.reason ? "No dead letter on this page has this reason." : "The group has no dead letters.",
  });
  const shown = h("div", null);
  const pager = h("nav", { class: "pager", "aria-label": "Pages of dead letters" });
  const chosen = h("div", { class: "pager", role: "status" });
  let letters = [];
  const update = () => {
    const here = letters.filter((letter) => page.selected.has(letter.dead_id));
    replace(chosen, here.length > 0 && chosenButtons(here, page));
  };
  const load = async () => {
    try {
      const asked = { limit: PAGE, after: page.query.after, newest: page.isOldest ? null : true, ...page.filter };
      const found = await get(page.calls, asked, { signal: page.signal });
      letters = found.messages;
      rows.update(letters);
      replace(pager, pagerLinks(found, page));
      if (!rows.node.isConnected) replace(shown, rows.node);
      update();
    } catch (error) {
      if (!page.signal.aborted && !rows.node.isConnected) replace(shown, failure(error, "The list of dead letters"));
      throw error;
    }
  };
  const first = page.isOldest ? "oldest" : "newest";
  return { node: section(`Letters, the ${first} first`, orderLinks(page), chosen, shown, pager, panel), load };
}

/** Returns the link that turns the list round. */
function orderLinks(page) {
  const { reason, detail } = page.filter;
  const [order, text] = page.isOldest ? [null, "Show the newest first"] : ["oldest", "Show the oldest first"];
  return h("div", { class: "pager" }, h("a", { href: page.address({ order, reason, detail }) }, text));
}

function checkbox(row, page, update) {
  const checked = page.selected.has(row.dead_id);
  const box = h("input", { type: "checkbox", "aria-label": `Choose ${visibleLine(row.id)}`, checked });
  box.addEventListener("change", () => {
    if (box.checked) page.selected.add(row.dead_id);
    else page.selected.delete(row.dead_id);
    update();
  });
  return box;
}

function chosenButtons(letters, page) {
  return [
    h("span", null, letters.length === 1 ? "1 letter is chosen." : `${count(letters.length)} letters are chosen.`),
    actButton("Redrive the chosen", () => askThese(page, "redrive", letters)),
    actButton("Drop the chosen", () => askThese(page, "drop", letters), { danger: true }),
  ];
}

/** Returns the cell that opens a letter below the table, where a refresh of the table changes nothing. */
function letterHead(row, page, panel) {
  const press = () => {
    const title = h("h3", { tabindex: "-1" }, `Message ${visibleLine(row.id)}`);
    const close = h("button", { type: "button", onclick: () => panel.replaceChildren() }, "Close");
    replace(panel, h("div", { class: "card" }, title, letterContent(row, page), h("div", { class: "buttons" }, close)));
    title.focus();
  };
  return h("button", { type: "button", class: "link", onclick: press }, visibleLine(row.id));
}

function letterContent(row, page) {
  const asked = { id: `${row.queue}:${row.offset}`, group: page.group };
  const trace = withQuery(path`#/subjects/${page.subject}/trace`, asked);
  const headers = Object.entries(row.headers ?? {});
  const isPlaced = typeof row.queue === "number";
  return [
    h(
      "dl",
      { class: "facts" },
      fact("Dead letter", h("code", null, row.dead_id)),
      isPlaced && fact("Queue and offset", `${row.queue}:${row.offset}`),
      fact("Sent", time(row.produced_at, { precise: true })),
      row.attempt !== undefined && fact("Attempts", count(row.attempt)),
      row.detail && fact("What the consumer said", visibleLine(row.detail)),
      row.tags?.length > 0 && fact("Tags", row.tags.map((tag) => badge(visibleLine(tag)))),
      headers.map(([name, value]) => fact(`Header ${visibleLine(name)}`, visibleLine(value))),
    ),
    body(row),
    h(
      "div",
      { class: "pager" },
      isPlaced && h("a", { href: trace }, "What happened before: trace"),
      actButton("Redrive", () => askThese(page, "redrive", [row])),
      actButton("Drop", () => askThese(page, "drop", [row]), { danger: true }),
    ),
  ];
}

function fact(name, ...values) {
  return [h("dt", null, name), h("dd", null, values)];
}

function pagerLinks(found, page) {
  const asked = { reason: page.filter.reason, detail: page.filter.detail };
  return [
    page.query.after && h("a", { href: page.address(asked) }, "First page"),
    found.next && h("a", { href: page.address({ ...asked, after: found.next }) }, "Next page"),
  ];
}
