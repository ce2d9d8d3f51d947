/**
 * The wheels: which bucket of delayed messages has which owner, and how late messages were.
 */

import { get, poll } from "../../api.js";
import { visibleLine } from "../../bodies.js";
import { barChart, updateChart } from "../../charts.js";
import { h, replace } from "../../dom.js";
import { count, time } from "../../format.js";
import { badge, failure, section } from "../../frame.js";
import { durationText } from "../../scales.js";
import { table } from "../../table.js";

const EVERY_MS = 5_000;
const KINDS = { turning: "good", overdue: "bad" };

/** Returns the section of the wheels, and of the lateness where the server counts it. */
export function wheels({ signal }) {
  const rows = table({
    caption: "Open buckets",
    columns: [
      { key: "starts_at", label: "Messages due from", header: true, render: (row) => time(row.starts_at) },
      { key: "ends_at", label: "To", render: (row) => time(row.ends_at) },
      { key: "state", label: "State", render: (row) => badge(row.state, KINDS[row.state]) },
      { key: "owner", label: "Owner", render: (row) => (row.owner ? visibleLine(row.owner) : "–") },
      { key: "lease_until", label: "Lease until", render: (row) => time(row.lease_until) },
      { key: "wakes_at", label: "Wakes at", render: (row) => time(row.wakes_at) },
      { key: "messages", label: "Stored", numeric: true, title: "Sent and cancelled ones too", render: storedIn },
    ],
    rowKey: (row) => row.bucket,
    empty: "No bucket of delayed messages is open.",
  });
  const shown = h("div", null);
  const late = h("div", null);
  const said = h("p", { class: "muted" });
  let chart = null;
  const load = async () => {
    const found = await get("wheels", {}, { signal });
    rows.update(found.wheels);
    if (!rows.node.isConnected) replace(shown, rows.node);
    said.textContent = found.complete ? "" : "There are more open buckets.";
    if (!found.lateness) return;
    if (chart) updateChart(chart, latenessOptions(found.lateness));
    else replace(late, (chart = barChart(latenessOptions(found.lateness))));
  };
  poll(load, {
    everyMs: EVERY_MS,
    signal,
    onError: (error) => {
      if (!rows.node.isConnected) replace(shown, failure(error, "The list of wheels"));
    },
  });
  return section("Wheels", late, shown, said);
}

function storedIn(row) {
  return count(row.messages);
}

/** `lateness`: `[{seconds, handovers}]`, hand-overs up to each bound; null is no bound. */
export function latenessOptions(lateness) {
  const bars = lateness.map(({ seconds, handovers }) => ({
    label: seconds === null ? "later" : `≤ ${durationText(seconds * 1_000)}`,
    value: handovers,
  }));
  return { title: "How late messages were handed over, since the server started", name: "hand-overs", bars };
}
