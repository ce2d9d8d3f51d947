/** Shows the keys that an ordered group holds, and decides about those that are stopped. */

import { post, settings } from "../../api.js";
import { actButton, confirmAct, toast } from "../../dialog.js";
import { h } from "../../dom.js";
import { count, time } from "../../format.js";
import { table } from "../../table.js";
import { badges, panel, visible } from "./panels.js";
import { browseLink, groupPath } from "./paths.js";

const DECISIONS = {
  retry: ["Retry", "The message at the head of each key is tried again, as a first attempt."],
  dead: [
    "Give up",
    "The message at the head of each key becomes a dead letter, and its key goes on with the next one.",
  ],
};

/** Returns the body of the request that decides about one key, or with `null` about all. */
export const decisionOf = (then, key) => (key === null ? { then, all: true } : { then, keys: [key] });

function decideButton(subject, group, then, key, changed) {
  const [label, text] = DECISIONS[then];
  const ask = () =>
    confirmAct({
      title: key === null ? `${label}: all stopped keys?` : `${label}: the key ${visible(key)}?`,
      text,
      danger: then === "dead",
      label,
      act: () => post(`${groupPath(subject, group)}/held`, decisionOf(then, key)),
      done: ({ decided }) => {
        toast(`${count(decided)} ${decided === 1 ? "key goes" : "keys go"} on.`);
        changed();
      },
    });
  return actButton(`${label}…`, ask, { danger: then === "dead" });
}

/** Returns `{node, update(held)}`, with buttons for each stopped key and for all of them. */
export function heldPanel(subject, group, changed) {
  const decide = (then, key) => decideButton(subject, group, then, key, changed);
  const all =
    !settings.readOnly &&
    h("div", { class: "pager" }, "All stopped keys:", decide("retry", null), decide("dead", null));
  const own = panel("Held keys");
  const position = ({ queue, offset }) =>
    h("a", { href: browseLink(subject, { by: "offset", queue, at: offset }) }, `${queue}:${offset}`);
  const state = (row) =>
    row.stopped ? [badges([["stopped", "bad"]]), why(row)] : row.due_at ? ["retried at ", time(row.due_at)] : "waits for its retry";
  const why = ({ reason, detail }) => (reason ? ` ${[reason, detail].filter(Boolean).map(visible).join(": ")}` : "");
  const columns = [
    { key: "key", label: "Key", render: (row) => (row.key === null ? "not readable" : visible(row.key)) },
    { key: "position", label: "Message", render: position },
    { key: "attempt", label: "Next attempt", numeric: true, render: (row) => count(row.attempt) },
    { key: "state", label: "State", render: (row) => h("span", null, state(row)) },
    { key: "behind", label: "Parked behind", numeric: true, render: (row) => count(row.behind) },
  ];
  if (!settings.readOnly) {
    const acts = (row) =>
      row.stopped &&
      row.key !== null &&
      h("div", { class: "actions" }, decide("retry", row.key), decide("dead", row.key));
    columns.push({ key: "act", label: "Decide", render: acts });
  }
  const view = table({
    caption: "Keys whose first message failed",
    columns,
    rows: [],
    rowKey: (row) => `${row.queue}:${row.offset}`,
    empty: "No key is held.",
  });
  const note = h("p", { class: "small" });
  own.show(note, all, view.node);
  const update = (held) => {
    const full = [
      ...(held.full.length ? [` Queues that wait until a key is released: ${held.full.join(", ")}.`] : []),
      ...(held.full_of_messages.length ? [` Queues that park no more messages: ${held.full_of_messages.join(", ")}.`] : []),
    ].join("");
    note.textContent = `${count(held.keys)} keys are held, and ${count(held.parked)} messages are parked.${full}`;
    if (all) all.hidden = !held.first.some((key) => key.stopped);
    view.update(held.first);
  };
  return { node: own.node, update };
}
