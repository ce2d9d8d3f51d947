/**
 * One delayed message: found by its id. Cancels messages, and moves them to another time.
 */

import { del, get, patch } from "../../api.js";
import { visibleLine } from "../../bodies.js";
import { actButton, confirmAct, toast } from "../../dialog.js";
import { h, path, replace, withQuery } from "../../dom.js";
import { isUtc, time, timeText } from "../../format.js";
import { badge, failure, section } from "../../frame.js";

/** The kinds of badges by state. */
export const KINDS = { waiting: "good", moved: "good", cancelled: "warn" };

/** Returns the section in which a person looks up a message by its `scheduled_id`. `address` makes the address of the
 * page with other values of its query. */
export function lookUp({ id, signal, navigate, address }) {
  const field = h("input", { type: "search", name: "id", value: id ?? "", size: "48", autocomplete: "off" });
  const form = h("form", { class: "filters" });
  const button = h("button", { type: "submit" }, "Look up");
  form.append(h("label", null, "Id that the server gave (scheduled_id)", field), button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    navigate(address({ id: field.value.trim() }));
  });
  const shown = h("div", { role: "status" });
  const read = () => showMessage({ id, shown, signal, navigate, address });
  if (id) read();
  return section("One message", form, shown);
}

async function showMessage(page) {
  const { id, shown, signal } = page;
  try {
    const found = await get(path`scheduled/${id}`, {}, { signal });
    replace(shown, card(found, page));
  } catch (error) {
    if (!signal.aborted) replace(shown, failure(error, "The search by id"));
  }
}

function card(found, page) {
  const isDone = found.state === "dispatched" || found.state === "cancelled";
  const place = found.queue === undefined ? null : `${found.queue}:${found.offset}`;
  const trace = withQuery(path`#/subjects/${found.subject}/trace`, { id: place ?? found.scheduled_id });
  const moved = (result) => {
    if (result.state !== "moved") return showMessage(page);
    page.navigate(page.address({ id: result.scheduled_id }));
  };
  return h(
    "div",
    { class: "card" },
    h(
      "dl",
      { class: "facts" },
      fact("State", badge(found.state, KINDS[found.state])),
      fact("Subject", h("a", { href: path`#/subjects/${found.subject}` }, found.subject)),
      fact("Message", h("code", null, visibleLine(found.id))),
      fact("Due", time(found.deliver_at, { precise: true })),
      found.dispatched_at && fact("Sent", time(found.dispatched_at, { precise: true })),
      place && fact("Queue and offset", place),
    ),
    h(
      "div",
      { class: "actions" },
      h("a", { href: trace }, "Trace"),
      !isDone && actButton("Move", () => askMove(page.id, found, moved)),
      !isDone && actButton("Cancel the message", () => askCancel(page.id, found, () => showMessage(page)), { danger: true }),
    ),
  );
}

function fact(name, ...values) {
  return [h("dt", null, name), h("dd", null, values)];
}

function described(found) {
  const name = found.id === undefined ? "that cannot be read" : visibleLine(found.id);
  return `The message ${name} of ${found.subject}, due ${timeText(found.deliver_at)},`;
}

/** Asks, and cancels the message `found` by this id; `done` is called when the server has answered. */
export function askCancel(id, found, done) {
  confirmAct({
    title: "Cancel the message?",
    text: `${described(found)} will never be sent. This cannot be undone.`,
    danger: true,
    label: "Cancel the message",
    no: "Keep it",
    act: () => del(path`scheduled/${id}`),
    done: (result) => {
      const isLate = result.state === "dispatched";
      toast(isLate ? "The message was sent before it could be cancelled." : "The message is cancelled.");
      return done(result);
    },
  });
}

/** Asks for a new time, and moves the message `found` by this id; `done` gets the answer of the server. */
export function askMove(id, found, done) {
  const at = h("input", { type: "datetime-local", step: "1", name: "time" });
  const delay = h("input", { type: "text", name: "delay", placeholder: "10m", size: "8" });
  const zone = isUtc() ? "UTC" : "local time";
  confirmAct({
    title: "Move the message to another time?",
    text: `${described(found)} gets the time that you give. A time in the past sends it now.`,
    details: [
      h("label", { class: "field" }, `New time (${zone})`, at),
      h("label", { class: "field" }, "Or a delay from now: a number with ms, s, m, h or d", delay),
    ],
    label: "Move the message",
    act: () => patch(path`scheduled/${id}`, target(at.value, delay.value.trim())),
    done: (result) => {
      const texts = {
        moved: `The message is due ${timeText(result.deliver_at)} now.`,
        dispatched: "The message was sent before it could be moved.",
        cancelled: "The message was cancelled before: it was not moved.",
      };
      toast(texts[result.state] ?? `The message is ${result.state}.`);
      return done(result);
    },
  });
}

/** Returns the body of the call that moves a message. Throws an error if neither or both of the fields are filled. */
export function target(time, delay) {
  if (Boolean(time) === Boolean(delay)) throw new Error("Fill one of the two fields: the new time, or the delay.");
  return delay ? { delay } : { deliver_at: new Date(isUtc() ? `${time}Z` : time).toISOString() };
}
