/** Moves a group to another place, after it said how many messages that is. */

import { post } from "../../api.js";
import { actButton, confirmAct, toast } from "../../dialog.js";
import { h, on } from "../../dom.js";
import { count } from "../../format.js";
import { choice, disclosure, fieldsOf, form, lines, textField, timeField } from "./forms.js";
import { groupPath } from "./paths.js";
import { number } from "./values.js";

/** Returns the body of the request for what the form says. Throws `FieldError`. */
export function aimOf({ where, time, queue, offset }) {
  if (where === "start" || where === "end") return { to: where };
  if (where === "time") return { time: time() };
  return {
    queue: number(queue, { label: "Queue", from: 0, to: 63 }),
    offset: number(offset, { label: "Offset", from: 0, to: Number.MAX_SAFE_INTEGER }),
  };
}

const sum = (positions, name) => positions.reduce((total, position) => total + position[name], 0);

/** Returns the lines that the question shows: how many messages the move concerns, and where each queue goes on. */
export function seekDetails({ positions }) {
  const again = sum(positions, "served_again");
  const over = sum(positions, "passed_over");
  return [
    again ? `${count(again)} messages are served again.` : "No message is served again.",
    over ? `${count(over)} messages are passed over.` : "No message is passed over.",
    ...positions.map(({ queue, offset }) => `Queue ${queue} goes on at offset ${count(offset)}.`),
  ];
}

/** Returns the button that passes over all messages that wait, after it said how many these are. */
export function purgeButton(subject, group, changed) {
  const path = `${groupPath(subject, group)}/seek`;
  const press = async () => {
    const answer = await post(path, { to: "end", dry_run: true });
    const over = sum(answer.positions, "passed_over");
    confirmAct({
      title: `Purge ${group}?`,
      text: `The group passes over ${count(over)} ${over === 1 ? "message" : "messages"}. They stay for other groups, and a seek leads back to them. Leased messages, retries and dead letters stay as they are.`,
      danger: true,
      label: "Purge",
      no: "Keep them",
      act: () => post(path, { to: "end" }),
      done: changed,
    });
  };
  return actButton("Purge…", () => press().catch((error) => toast(error.message)));
}

/** Returns the panel; `changed` is called after the seek. */
export function seekPanel(subject, group, queues, signal, changed) {
  const fields = {
    where: choice({
      label: "To",
      name: "where",
      options: [
        ["start", "the oldest message that is kept"],
        ["end", "the end: only new messages"],
        ["time", "a time"],
        ["offset", "an offset of a queue"],
      ],
    }),
    time: timeField({ name: "time", signal }),
    queue: choice({
      label: "Queue",
      name: "queue",
      options: Array.from({ length: queues }, (_, queue) => [String(queue), String(queue)]),
    }),
    offset: textField({ label: "Offset", name: "offset", inputmode: "numeric" }),
  };
  const follow = () => {
    const where = fields.where.text();
    fields.time.node.hidden = where !== "time";
    fields.queue.node.hidden = fields.offset.node.hidden = where !== "offset";
  };
  follow();
  on(fields.where.input, "change", follow, signal);
  const path = `${groupPath(subject, group)}/seek`;
  const act = async () => {
    const aim = aimOf({
      where: fields.where.text(),
      time: fields.time.instant,
      queue: fields.queue.text(),
      offset: fields.offset.text(),
    });
    const answer = await post(path, { ...aim, dry_run: true });
    confirmAct({
      title: `Move ${group}?`,
      text: "Changes what the group gets next. Leased messages, retries and dead letters stay as they are.",
      details: lines(seekDetails(answer)),
      danger: true,
      label: "Move",
      act: () => post(path, aim),
      done: changed,
    });
  };
  const parts = [h("p", null, "The number of messages is shown before anything is changed."), fieldsOf(fields)];
  return disclosure("Seek", form({ label: "Seek", parts, button: "Count the messages…", signal, act }));
}
