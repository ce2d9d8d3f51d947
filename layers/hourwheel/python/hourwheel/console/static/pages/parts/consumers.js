/** Shows who pulls from a group and how far each is, and which leases end next. */

import { get, post, settings } from "../../api.js";
import { actButton, confirmAct } from "../../dialog.js";
import { h, path } from "../../dom.js";
import { count, time } from "../../format.js";
import { table } from "../../table.js";
import { panel } from "./panels.js";
import { browseLink, groupPath } from "./paths.js";

function leaveButton(subject, group, consumer, changed) {
  const ask = () =>
    confirmAct({
      title: `End the leases of ${consumer.consumer}?`,
      text:
        `The ${count(consumer.in_flight)} messages in flight are served again at once, with the same attempt. ` +
        "What this consumer settles later is stale: do this for a consumer that died.",
      danger: true,
      label: "End leases",
      act: () => post(`${groupPath(subject, group)}/${path`consumers/${consumer.consumer}/leave`}`),
      done: changed,
    });
  return actButton("End leases…", ask, { danger: true });
}

/** Returns `{node, load()}` for the consumers of the group. */
export function consumersPanel(subject, group, changed) {
  const own = panel("Consumers");
  const columns = [
    { key: "consumer", label: "Consumer", render: (row) => row.consumer },
    { key: "in_flight", label: "In flight", numeric: true, render: (row) => count(row.in_flight) },
    { key: "leases", label: "Leases", numeric: true, render: (row) => count(row.leases) },
    { key: "lease_until", label: "First lease ends", render: (row) => time(row.lease_until) },
    { key: "pulled_at", label: "Last pull", render: (row) => time(row.pulled_at) },
    { key: "since", label: "Since", render: (row) => time(row.since) },
  ];
  if (!settings.readOnly) {
    const button = (row) => row.leases > 0 && leaveButton(subject, group, row, changed);
    columns.push({ key: "act", label: "Act", render: button });
  }
  const empty = "Nobody pulled lately, and nobody holds a lease.";
  const view = table({
    caption: "Who pulled lately or holds leases",
    columns,
    rows: [],
    rowKey: (row) => row.consumer,
    empty,
  });
  own.show(view.node);
  const load = own.guard(async () => view.update((await get(`${groupPath(subject, group)}/consumers`)).consumers));
  return { node: own.node, load };
}

/** Returns a key for each lease. Leases of retries have no offset: several of one consumer may look alike. */
export function leaseRows(leases) {
  const seen = new Map();
  return leases.map((lease) => {
    const alike = `${lease.consumer} ${lease.queue} ${lease.offset} ${lease.lease_until}`;
    const number = seen.get(alike) ?? 0;
    seen.set(alike, number + 1);
    return { ...lease, key: `${alike} ${number}` };
  });
}

/** Returns `{node, load()}` for the open leases, the one that ends next first. */
export function leasesPanel(subject, group) {
  const own = panel("Leases that end next");
  const position = ({ queue, offset }) => {
    if (queue === null) return "retries";
    return h("a", { href: browseLink(subject, { by: "offset", queue, at: offset }) }, `${queue}:${offset}`);
  };
  const columns = [
    { key: "lease_until", label: "Ends", render: (row) => time(row.lease_until) },
    { key: "consumer", label: "Consumer", render: (row) => row.consumer },
    { key: "position", label: "First message", render: position },
    { key: "messages", label: "Messages", numeric: true, render: (row) => count(row.messages) },
  ];
  const empty = "No message is leased.";
  const view = table({ caption: "Open leases", columns, rows: [], rowKey: (row) => row.key, empty });
  const note = h("p", { class: "small" });
  own.show(view.node, note);
  const load = own.guard(async () => {
    const { leases, complete } = await get(`${groupPath(subject, group)}/leases`);
    view.update(leaseRows(leases));
    note.textContent = complete ? "" : "There are more leases, which end later.";
  });
  return { node: own.node, load };
}

/** Returns `{node, update(consumers)}` for the numbers of each consumer of a broadcast group. */
export function progressPanel() {
  const own = panel("Progress of each consumer");
  const number = (key, label) => ({ key, label, numeric: true, render: (row) => count(row[key]) });
  const columns = [
    { key: "consumer", label: "Consumer" },
    number("waiting", "Waiting"),
    number("in_flight", "In flight"),
    number("retrying", "Retrying"),
    number("backing_off", "Backing off"),
    number("dead", "Dead"),
    number("expired_unread", "Expired unread"),
  ];
  const empty = "No consumer has pulled yet.";
  const view = table({ caption: "Lag of each consumer", columns, rows: [], rowKey: (row) => row.consumer, empty });
  own.show(view.node);
  return { node: own.node, update: view.update };
}
