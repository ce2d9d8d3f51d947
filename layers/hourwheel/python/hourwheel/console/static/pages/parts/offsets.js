/** Counts messages by offsets. */

/** A queue goes on this many offsets higher after a part that took its messages was lost. */
const LOST_GAP = 2 ** 46;

/** Returns the number of messages of a queue below an offset, without those of parts that were lost. */
export function messagesBelow(offset) {
  return offset % LOST_GAP;
}

/** Returns the share of the messages that a group has pulled at least once, from 0 to 1; null where it is not known. */
export function progressOf(group, queues) {
  if (group.broadcast || queues.some((queue) => queue.end === null)) return null;
  const end = queues.reduce((sum, queue) => sum + messagesBelow(queue.end), 0);
  return end === 0 ? 1 : Math.min(1, group.settled / end);
}
