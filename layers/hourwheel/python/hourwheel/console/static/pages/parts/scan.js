/** Searches a queue page by page, a bounded number of pages at a time, and says how far it looked. */

const PAGES = 10; // 1,000 messages of one press: on AWS at most 2,560 rows are read for it

/**
 * Returns `{found, damaged, messages, next, end}`: the messages that `matches` takes, the rows that could not be read,
 * the number of messages that were looked at, the offset at which the search goes on (null: the queue's end was
 * reached), and the queue's end. `load(offset)` returns one page; an offset of null begins where the search begins.
 */
export async function scan({ load, matches, offset = null, wanted = 100, pages = PAGES }) {
  const result = { found: [], damaged: [], messages: 0, next: offset, end: 0 };
  for (let page = 0; page < pages; page += 1) {
    const answer = await load(result.next);
    result.messages += answer.messages.length;
    result.found.push(...answer.messages.filter(matches));
    result.damaged.push(...answer.damaged);
    result.next = answer.next;
    result.end = answer.end;
    if (answer.next === null || result.found.length >= wanted) break;
  }
  return result;
}

/**
 * Returns `{found, next, calls}` of a search by id, which `load(after)` answers page by page. The search ends with the
 * page that has a message.
 */
export async function search({ load, after = null, pages = PAGES }) {
  let next = after;
  for (let calls = 1; calls <= pages; calls += 1) {
    const answer = await load(next);
    next = answer.next;
    if (answer.messages.length || next === null) return { found: answer.messages, next, calls };
  }
  return { found: [], next, calls: pages };
}
