/**
 * The subjects that have delayed messages, the most first.
 */

import { get, poll, settings } from "../../api.js";
import { h, path, replace, withQuery } from "../../dom.js";
import { count } from "../../format.js";
import { failure, section } from "../../frame.js";
import { table } from "../../table.js";

const EVERY_MS = 10_000;
const MOST = 20;

/** Returns the section with the subjects; on AWS the first ones by name, as the server sorts by nothing else. */
export function delayedSubjects({ signal }) {
  const rows = table({
    caption: "Subjects with delayed messages",
    columns: [
      { key: "subject", label: "Subject", header: true, render: subjectLink },
      { key: "delayed", label: "Delayed", numeric: true, render: (row) => count(row.delayed) },
      { key: "page", label: "Page", render: pageLink },
    ],
    rowKey: (row) => row.subject,
    empty: "No subject has delayed messages.",
  });
  const shown = h("div", null);
  const asked = { limit: MOST, sort: settings.aws ? "name" : "delayed" };
  const load = async () => {
    const found = await get("overview", asked, { signal });
    rows.update(found.subjects.filter((row) => row.delayed > 0));
    if (!rows.node.isConnected) replace(shown, rows.node);
  };
  poll(load, {
    everyMs: EVERY_MS,
    signal,
    onError: (error) => {
      if (!rows.node.isConnected) replace(shown, failure(error, "The list of subjects"));
    },
  });
  return section("By subject", shown);
}

function subjectLink({ subject }) {
  return h("a", { href: withQuery("#/delayed", { subject }) }, subject);
}

function pageLink({ subject }) {
  return h("a", { href: path`#/subjects/${subject}` }, "Queues and groups");
}
