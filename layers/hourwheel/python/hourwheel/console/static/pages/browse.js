/** Shows the messages of a queue: at an offset, at a time, the newest, those of a key, or one by its id. */

import { get } from "../api.js";
import { h, on, path, replace } from "../dom.js";
import { count, timeText } from "../format.js";
import { failure, heading } from "../frame.js";
import { choice, fieldsOf, form, textField, timeField } from "./parts/forms.js";
import { queueOf } from "./parts/keys.js";
import { damagedNode, messageNode } from "./parts/messages.js";
import { panel, visible } from "./parts/panels.js";
import { browseLink, queuePath, subjectLink, subjectPath, traceLink } from "./parts/paths.js";
import { scan, search } from "./parts/scan.js";
import { FieldError, number } from "./parts/values.js";

const WAYS = [
  ["newest", "the newest first"],
  ["oldest", "the oldest first"],
  ["offset", "from an offset"],
  ["time", "from a time"],
  ["key", "those of a key"],
  ["id", "one by its id"],
];
const PAGE = 50;

/** Returns the query of the first call for what the address says. */
export function firstQuery({ by, at }) {
  if (by === "offset") return { offset: at, limit: PAGE };
  if (by === "time") return { time: at, limit: PAGE };
  if (by === "oldest") return { limit: PAGE };
  return { newest: true, limit: by === "key" ? 100 : PAGE };
}

/** Returns what the page looks for: from the address, whose fields `offset`, `time`, `key` and `id` also work alone. */
export function wish(query) {
  const short = ["offset", "time", "key", "id"].find((name) => query[name] !== undefined);
  const by = query.by ?? short ?? "newest";
  return { by, at: query.at ?? query[by] ?? "", queue: query.queue };
}

function lookForm(subject, wanted, signal, navigate) {
  const numbers = Array.from({ length: subject.queues }, (_, queue) => [String(queue), String(queue)]);
  const fields = {
    by: choice({ label: "Show", name: "by", options: WAYS, value: wanted.by }),
    queue: choice({
      label: "Queue",
      name: "queue",
      options: [["", "that of the key"], ...numbers],
      value: String(wanted.queue ?? ""),
    }),
    offset: textField({
      label: "Offset",
      name: "offset",
      inputmode: "numeric",
      value: wanted.by === "offset" ? wanted.at : "",
    }),
    time: timeField({ name: "time", signal }),
    key: textField({ label: "Key", name: "key", value: wanted.by === "key" ? wanted.at : "" }),
    id: textField({
      label: "Id",
      name: "id",
      value: wanted.by === "id" ? wanted.at : "",
      hint: "Of the message, of a delayed message, or queue:offset.",
    }),
  };
  const follow = () => {
    const by = fields.by.text();
    for (const name of ["offset", "time", "key", "id"]) fields[name].node.hidden = by !== name;
    fields.queue.node.hidden = by === "id";
    fields.queue.input.options[0].hidden = by !== "key";
    if (by !== "key" && fields.queue.text() === "") fields.queue.input.value = "0";
  };
  follow();
  on(
    fields.by.input,
    "change",
    () => {
      if (fields.by.text() === "key") fields.queue.input.value = "";
      follow();
    },
    signal,
  );
  const act = () => navigate(browseLink(subject.subject, addressOf(fields)));
  const parts = [fieldsOf(fields)];
  return form({ label: "Messages to show", parts, button: "Show", signal, act });
}

function addressOf(fields) {
  const by = fields.by.text();
  const queue = by === "id" ? undefined : fields.queue.text();
  if (by === "offset") {
    return { by, queue, at: number(fields.offset.text(), { label: "Offset", from: 0, to: Number.MAX_SAFE_INTEGER }) };
  }
  if (by === "time") return { by, queue, at: fields.time.instant() };
  if (by === "key" || by === "id") {
    const at = fields[by].text();
    if (!at) throw new FieldError(by === "key" ? "Key" : "Id", "is needed");
    return { by, queue, at };
  }
  return { by, queue };
}

/** Shows what `load()` finds, and more of it whenever a person presses the button. `load` returns `{nodes, text, ended}`,
 * with the text about all of it. */
async function results({ view, button, signal, load }) {
  const list = h("div", { class: "messages" });
  const status = h("p", { role: "status", class: "small" }, "Searching…");
  const more = h("button", { type: "button", hidden: true }, button);
  const run = async () => {
    more.disabled = true;
    try {
      const { nodes, text, ended } = await load(list.childElementCount);
      list.append(...nodes);
      replace(status, text);
      more.hidden = ended;
    } catch (error) {
      if (signal.aborted) return;
      replace(status, failure(error, "This part"));
      more.hidden = false;
    }
    more.disabled = false;
  };
  on(more, "click", run, signal);
  view.show(list, status, more);
  await run();
}

/** Shows one span of a queue after the other, or searches it for the messages of a key. */
function spans(subject, queue, wanted, view, signal) {
  const isKey = wanted.by === "key";
  const isBack = isKey || wanted.by === "newest";
  const where = `${queuePath(subject, queue)}/messages`;
  const load = (offset) => {
    const query = offset === null ? firstQuery(wanted) : { newest: isBack, offset, limit: isKey ? 100 : PAGE };
    return get(where, query, { signal });
  };
  const matches = (message) => !isKey || message.key === wanted.at;
  let next = null;
  let looked = 0;
  const loadMore = async (shown) => {
    const answer = await scan({ load, matches, offset: next, wanted: isKey ? 100 : 1 });
    looked += answer.messages;
    next = answer.next;
    const found = answer.found.map((message) => messageNode(subject, message, signal));
    const nodes = [...found, ...answer.damaged.map(damagedNode)];
    return {
      nodes,
      text: told({ queue, isKey, isBack, looked, next, shown: shown + nodes.length }),
      ended: next === null,
    };
  };
  return results({ view, button: isKey ? "Look further" : "More", signal, load: loadMore });
}

/** Says what was found, and how far the search has come. */
export function told({ queue, isKey, isBack, looked, next, shown }) {
  const last = isBack ? "reached the oldest message that is kept" : "reached the end of the queue";
  const reached = next === null ? last : `goes on at offset ${count(next)}`;
  const found = shown ? counted(shown, "message") : "no message";
  if (!isKey) return `Queue ${queue}: ${found}; the page ${reached}.`;
  return `Queue ${queue}: ${found} of the key among the newest ${count(looked)}; the search ${reached}.`;
}

const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** Looks for a message by its id. The id of a sender does not say when the message came: its search begins with the
 * oldest message that is kept. */
function byId(subject, wanted, view, signal) {
  const where = path`subjects/${subject.subject}/messages/${wanted.at}`;
  const from = new Date(Date.now() - subject.retention_seconds * 1000).toISOString();
  let span = {};
  let next = null;
  const load = async (after) => {
    try {
      return await get(where, { ...span, after }, { signal });
    } catch (error) {
      if (["message-unknown", "offset-unknown"].includes(error.type)) return { messages: [], next: null };
      if (error.field !== "from" || span.from) throw error;
      span = { from };
      return load(after);
    }
  };
  const loadMore = async (shown) => {
    const answer = await search({ load, after: next });
    next = answer.next;
    const nodes = answer.found.map((entry) => foundNode(subject.subject, entry, signal));
    const since = span.from ? ` accepted since ${timeText(from)}` : "";
    const end = next === null ? "is complete" : `goes on at ${next}`;
    const found = shown + nodes.length ? counted(shown + nodes.length, "message") : "No message";
    return { nodes, text: `${found}${since} found; the search ${end}.`, ended: next === null };
  };
  return results({ view, button: "Look further", signal, load: loadMore });
}

function foundNode(subject, entry, signal) {
  if (entry.message) return messageNode(subject, entry.message, signal);
  const where = entry.offset === undefined || entry.offset === null ? "" : ` at ${entry.queue}:${entry.offset}`;
  const trace = h("a", { href: traceLink(subject, entry.scheduled_id ?? entry.id) }, "trace");
  return h(
    "p",
    { class: "message" },
    `${visible(entry.id)} is ${entry.state}${where}. `,
    trace,
    entry.damaged && ` ${entry.damaged}`,
  );
}

export async function show({ root, params, query, signal, navigate }) {
  const name = params.subject;
  const view = panel("Messages");
  const wanted = wish(query);
  const place = h("div");
  const crumbs = [
    ["Overview", "#/"],
    [name, subjectLink(name)],
  ];
  replace(root, heading({ title: `Messages of ${name}`, crumbs }), place, view.node);
  const subject = await get(subjectPath(name), null, { signal });
  if (signal.aborted) return;
  const queue = wanted.queue ?? (wanted.by === "key" ? queueOf(wanted.at, subject.queues) : 0);
  replace(place, lookForm(subject, wanted, signal, navigate));
  await (wanted.by === "id" ? byId(subject, wanted, view, signal) : spans(name, queue, wanted, view, signal));
}
