/** Says in words where the messages of a queue are, and what an operation changes about it. */

import { count } from "../../format.js";

/** Returns a sentence for each part of a queue that holds messages or takes new ones. */
export function spans(queue) {
  return queue.mappings
    .filter(({ state }) => state !== "expired" && state !== "lost")
    .map(({ start, end, cell }) =>
      end === null ? `from offset ${count(start)} on in ${cell}` : `offsets ${count(start)} to ${count(end - 1)} in ${cell}`);
}

/** Returns a sentence for each queue that differs between two routes of a subject. */
export function differences(before, after) {
  const known = new Map(before.queues.map((queue) => [queue.queue, queue]));
  const lines = [];
  for (const queue of after.queues) {
    const old = known.get(queue.queue);
    const [to, from] = [queue.mappings.at(-1).cell, old?.mappings.at(-1).cell];
    if (!old) lines.push(`Queue ${queue.queue} is new, in ${to}.`);
    else if (from !== to) lines.push(`New messages of queue ${queue.queue} go to ${to}, no longer to ${from}.`);
  }
  return lines;
}

/** Returns a sentence for each pending change of a route that the route afterwards lacks. */
export function withdrawn(before, after) {
  const lines = before.queues
    .filter(({ moving_to }, at) => moving_to !== null && after.queues[at].moving_to === null)
    .map(({ queue, moving_to }) => `Queue ${queue} does not move to ${moving_to}.`);
  if (before.pending_queues !== null && after.pending_queues === null)
    lines.push(`The subject does not get ${count(before.pending_queues)} queues.`);
  return lines;
}
