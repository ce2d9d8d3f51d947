/** Changes the settings of a subject, and creates groups. */

import { put } from "../../api.js";
import { confirmAct } from "../../dialog.js";
import { checkbox, disclosure, fieldsOf, form, lines, textField } from "./forms.js";
import { subjectPath } from "./paths.js";
import { changes, durationText, FieldError, number, seconds } from "./values.js";

const RETENTION_SECONDS = { from: 60, to: 2592000, fractions: false };
const MOST_QUEUES = 64;

const EFFECTS = {
  queues:
    "Keys move to other queues: messages of a key that were sent before and after may be served out of order. " +
    "The number cannot be lowered again.",
  retention_seconds: "Applies to messages that are sent from now on.",
  clamp_delays: "Concerns delays of more than 732 days.",
  read_only: "A read-only subject refuses new messages; what it accepted is delivered.",
};

/** Returns lines such as `retention: 3d → 7d`, with what each change means. */
export function subjectChanges(before, after) {
  const shown = (name, value) => (name === "retention_seconds" ? durationText(value) : String(value));
  return changes(before, after).map(
    ({ name, from, to }) => `${name}: ${shown(name, from)} → ${shown(name, to)}. ${EFFECTS[name]}`,
  );
}

/** Returns the panel with the settings of the subject; `changed` is called after a change. */
export function subjectSettings(subject, signal, changed) {
  const fields = {
    retention: textField({
      label: "Retention",
      name: "retention",
      value: durationText(subject.retention_seconds),
      hint: "1m to 30d.",
    }),
    queues: textField({
      label: "Queues",
      name: "queues",
      value: String(subject.queues),
      inputmode: "numeric",
      hint: `${subject.queues} to ${MOST_QUEUES}; can only grow.`,
    }),
    clamp: checkbox({ label: "Longer delays become 732 days", name: "clamp_delays", checked: subject.clamp_delays }),
    closed: checkbox({ label: "Read-only: new messages are refused", name: "read_only", checked: subject.read_only }),
  };
  const act = () => {
    const after = {
      queues: number(fields.queues.text(), { label: "Queues", from: subject.queues, to: MOST_QUEUES }),
      retention_seconds: seconds(fields.retention.text(), { label: "Retention", ...RETENTION_SECONDS }),
      clamp_delays: fields.clamp.checked(),
      read_only: fields.closed.checked(),
    };
    const details = subjectChanges(subject, after);
    if (!details.length) throw new FieldError("Settings", "nothing was changed");
    const body = Object.fromEntries(changes(subject, after).map(({ name, to }) => [name, to]));
    confirmAct({
      title: `Change ${subject.subject}?`,
      text: `Changes its settings:`,
      details: lines(details),
      label: "Change",
      act: () => put(subjectPath(subject.subject), body),
      done: changed,
    });
  };
  const parts = fieldsOf(fields);
  return disclosure("Settings", form({ label: "Settings of the subject", parts, button: "Change…", signal, act }));
}
