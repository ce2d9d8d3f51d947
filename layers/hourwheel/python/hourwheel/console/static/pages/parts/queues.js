/** Shows the queues of a subject: their offsets, their size, and in which cell they are. */

import { h } from "../../dom.js";
import { bytes, count, rate } from "../../format.js";
import { table } from "../../table.js";
import { badges, panel } from "./panels.js";
import { browseLink } from "./paths.js";

const unknown = "–";

/** Returns a row for each queue, with what the overview and the routes say of it. Either may be missing. */
export function queueRows(overview, routes) {
  const routed = new Map((routes?.queues ?? []).map((route) => [route.queue, route]));
  const queues =
    overview?.queues ??
    [...routed.keys()].map((queue) => ({ queue, start: null, end: null, messages: null, produced_per_second: null, bytes: null }));
  return queues.map((queue) => {
    const route = routed.get(queue.queue);
    const newest = route?.mappings.at(-1);
    return {
      ...queue,
      cell: newest?.cell ?? null,
      parts: route?.mappings.filter((mapping) => !["expired", "lost"].includes(mapping.state)).length ?? null,
      moving_to: route?.moving_to ?? null,
    };
  });
}

/** Returns `{node, guard, update(overview, routes)}`. */
export function queuesPanel(subject) {
  const own = panel("Queues and routes");
  const link = (row, text, at) =>
    h("a", { href: browseLink(subject, { by: at === undefined ? "newest" : "offset", queue: row.queue, at }) }, text);
  const columns = [
    { key: "queue", label: "Queue", render: (row) => link(row, String(row.queue)) },
    {
      key: "start",
      label: "First offset",
      numeric: true,
      render: (row) => (row.start === null ? unknown : link(row, count(row.start), row.start)),
    },
    { key: "end", label: "Next offset", numeric: true, render: (row) => count(row.end) },
    {
      key: "kept",
      label: "Kept",
      numeric: true,
      render: (row) => count(row.messages),
    },
    { key: "rate", label: "Produced per second", numeric: true, render: (row) => rate(row.produced_per_second) },
    { key: "bytes", label: "Size, about", numeric: true, render: (row) => bytes(row.bytes) },
    { key: "cell", label: "Cell", render: (row) => row.cell ?? unknown },
    {
      key: "route",
      label: "Route",
      render: (row) =>
        row.moving_to
          ? badges([[`moving to ${row.moving_to}`, "warn"]])
          : row.parts > 1 && `${row.parts - 1} closed ${row.parts === 2 ? "part" : "parts"}`,
    },
  ];
  const view = table({
    caption: "Queues of the subject",
    columns,
    rows: [],
    rowKey: (row) => String(row.queue),
    empty: "No queue.",
  });
  own.show(view.node);
  return { node: own.node, guard: own.guard, update: (overview, routes) => view.update(queueRows(overview, routes)) };
}
