/** Sends a test message, now or delayed. */

import { post } from "../../api.js";
import { confirmAct } from "../../dialog.js";
import { h, on, replace } from "../../dom.js";
import { duration, time } from "../../format.js";
import { checkbox, choice, disclosure, fieldsOf, form, textArea, textField, textsIn, timeField } from "./forms.js";
import { browseLink, subjectPath, traceLink } from "./paths.js";
import { FieldError, headers, list, seconds } from "./values.js";

const TWO_YEARS_SECONDS = 732 * 86400;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** Returns the message of the API for the texts of the form; `at()` reads its time. Throws `FieldError`. */
export function messageOf(texts, at) {
  const message = texts.binary ? { body_base64: texts.body.replace(/\s/g, "") } : { body: texts.body };
  if (texts.binary && !BASE64.test(message.body_base64)) throw new FieldError("Body", "is not base64");
  if (texts.key) message.key = texts.key;
  if (texts.id) message.id = texts.id;
  const tags = list(texts.tags);
  if (tags.length) message.tags = tags;
  const named = headers(texts.headers, { label: "Headers" });
  if (Object.keys(named).length) message.headers = named;
  if (texts.when === "delay") message.delay = seconds(texts.delay, { label: "Delay", from: 0, to: TWO_YEARS_SECONDS });
  if (texts.when === "time") message.deliver_at = at();
  return message;
}

function whenOf(message) {
  if (message.delay !== undefined) return [`in ${duration(message.delay * 1000)}`];
  return message.deliver_at ? ["at ", time(message.deliver_at)] : ["now"];
}

function question(subject, message) {
  const isDelayed = message.delay !== undefined || message.deliver_at;
  const isEmpty = !(message.body ?? message.body_base64);
  return {
    title: isEmpty ? "Send a message with an empty body?" : "Send this message?",
    text: isDelayed ? "It can be cancelled until its time." : "A message that was sent cannot be taken back.",
    details: h("p", null, `Every group of ${subject} gets one message `, whenOf(message), "."),
  };
}

/** Returns where the message is: a link to it in its queue, or to its trace while it is delayed. */
function receipt(subject, result) {
  if (result.scheduled_id) {
    const trace = h("a", { href: traceLink(subject, result.scheduled_id) }, "its trace");
    return h("p", { class: "note good" }, "Delayed until ", time(result.scheduled), ": ", trace, ".");
  }
  const position = `${result.queue}:${result.offset}`;
  const there = h(
    "a",
    { href: browseLink(subject, { by: "offset", queue: result.queue, at: result.offset }) },
    position,
  );
  return h(
    "p",
    { class: "note good" },
    "Stored at ",
    there,
    "; ",
    h("a", { href: traceLink(subject, position) }, "its trace"),
    ".",
  );
}

function sendFields(signal) {
  return {
    body: textArea({ label: "Body", name: "body" }),
    binary: checkbox({ label: "The body is base64 of bytes", name: "binary" }),
    key: textField({ label: "Key", name: "key", hint: "Messages of one key stay in order.", maxlength: "256" }),
    tags: textField({ label: "Tags", name: "tags", hint: "Separated by commas." }),
    headers: textArea({ label: "Headers", name: "headers", rows: "2", hint: "A line each, such as trace: abc" }),
    id: textField({ label: "Id", name: "id", hint: "Without one the server gives one.", maxlength: "100" }),
    when: choice({
      label: "Delivery",
      name: "when",
      options: [
        ["now", "now"],
        ["delay", "after a delay"],
        ["time", "at a time"],
      ],
    }),
    delay: textField({ label: "Delay", name: "delay", value: "10m", hint: "Such as 90s, 1.5h or 30d; up to 732d." }),
    time: timeField({ name: "time", signal }),
  };
}

/** Returns the panel with the form. */
export function sendPanel(subject, signal) {
  const fields = sendFields(signal);
  const follow = () => {
    fields.delay.node.hidden = fields.when.text() !== "delay";
    fields.time.node.hidden = fields.when.text() !== "time";
  };
  follow();
  on(fields.when.input, "change", follow, signal);
  const sent = h("div", { role: "status" });
  const act = () => {
    const message = messageOf(textsIn(fields), fields.time.instant);
    // One key for every press of the question's button: a message whose answer was lost is not stored twice.
    const idempotency_key = `console-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
    replace(sent);
    confirmAct({
      ...question(subject, message),
      label: "Send",
      act: () => post(`${subjectPath(subject)}/messages`, { messages: [message], idempotency_key }),
      done: (answer) => replace(sent, receipt(subject, answer.results[0])),
    });
  };
  const parts = fieldsOf(fields);
  // Enter in a field of one line must not send by accident.
  const node = form({ label: "Test message", parts, button: "Send…", signal, act, onEnter: false });
  return disclosure("Send a test message", node, sent);
}
