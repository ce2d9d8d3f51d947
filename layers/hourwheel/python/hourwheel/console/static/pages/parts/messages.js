/** Shows messages of a queue: where each is, what it carries, and its body when a person opens it. */

import { body } from "../../bodies.js";
import { h, on, replace } from "../../dom.js";
import { bytes, count, time } from "../../format.js";
import { facts, visible } from "./panels.js";
import { browseLink, traceLink } from "./paths.js";

const PREVIEW = 120; // characters: one line of a wide window

/** Returns the size of the body in bytes, as it was sent. */
export function sizeOf(message) {
  if (message.body_base64 === undefined) return new TextEncoder().encode(message.body).length;
  const text = message.body_base64;
  return (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
}

/** Returns the beginning of the body on one line, with its control characters as symbols. */
export function preview(message) {
  if (message.body_base64 !== undefined) return "bytes";
  if (!message.body) return "empty";
  return visible(message.body.slice(0, PREVIEW)) + (message.body.length > PREVIEW ? "…" : "");
}

function about(subject, message) {
  const pairs = [
    ["id", h("a", { href: traceLink(subject, `${message.queue}:${message.offset}`) }, visible(message.id), " (trace)")],
  ];
  if (message.key !== undefined) {
    pairs.push(["key", h("a", { href: browseLink(subject, { by: "key", at: message.key }) }, visible(message.key))]);
  }
  if (message.due_at) pairs.push(["due", time(message.due_at)]);
  for (const tag of message.tags ?? []) pairs.push(["tag", visible(tag)]);
  for (const [name, value] of Object.entries(message.headers ?? {}))
    pairs.push([`header ${visible(name)}`, visible(value)]);
  return facts(pairs);
}

/** Returns the message as a section that opens; the body is made when it is opened first. */
export function messageNode(subject, message, signal) {
  const content = h("div");
  const node = h(
    "details",
    { class: "message" },
    h(
      "summary",
      null,
      h("span", { class: "position" }, `${message.queue}:${message.offset}`),
      " ",
      time(message.produced_at),
      " ",
      h("span", { class: "small" }, bytes(sizeOf(message))),
      " ",
      h("code", null, preview(message)),
    ),
    about(subject, message),
    content,
  );
  on(
    node,
    "toggle",
    () => {
      if (node.open && !content.hasChildNodes()) replace(content, body(message));
    },
    signal,
  );
  return node;
}

/** Returns a row that cannot be read, in place of its messages. */
export function damagedNode(row) {
  const where = row.offset === null ? "At an unknown offset" : `From offset ${count(row.offset)}`;
  return h("p", { class: "note bad" }, `${where}: ${count(row.messages)} messages cannot be read: ${row.reason}`);
}
