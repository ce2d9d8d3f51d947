/**
 * Writes the events of a trace as sentences, in the order of their times.
 */

import { visibleLine } from "../../bodies.js";
import { path, withQuery } from "../../dom.js";
import { timeText } from "../../format.js";

const SENTENCES = {
  pulled: (event) => `Pulled by ${consumer(event)}${attempt(event)}${at(", leased until ", event.lease_until)}`,
  acknowledged: () => "Acknowledged",
  retried: (event) => `To be retried${attempt(event)}${at(", due ", event.due_at)}${reason(event)}`,
  released: () => "Released: pulled, and given back without an attempt",
  lease_ended: () => "The lease ended before the message was settled",
  due: () => "The delay of the retry was over",
  stopped: (event) => `Stopped its key${reason(event)}`,
  decided: (event) => `An operator decided: ${event.reason === "dead" ? "a dead letter" : "try again"}`,
  dead: (event) => `Became a dead letter${reason(event)}`,
  redriven: () => "Redriven",
};

const KINDS = { acknowledged: "good", retried: "warn", lease_ended: "warn", stopped: "bad", dead: "bad" };

function consumer(event) {
  return event.consumer === undefined ? "a consumer" : visibleLine(event.consumer);
}

function attempt(event) {
  return event.attempt === undefined ? "" : `, attempt ${event.attempt}`;
}

function at(words, value) {
  return value ? `${words}${timeText(value)}` : "";
}

function reason(event) {
  return [event.reason, event.detail].filter(Boolean).map((text) => `: ${visibleLine(text)}`).join("");
}

/** Returns what happened to a message before it came to any group, or, with `group`, in that group:
 * `[{at, text, kind, link}]`, where `at` may be missing. */
export function timelineOf(found, group, subject) {
  return group ? group.events.map((event) => entry(event, group, subject)) : ownEvents(found);
}

function entry(event, group, subject) {
  const sentence = SENTENCES[event.event];
  const href = withQuery(path`#/subjects/${subject}/groups/${group.group}/dead`, {});
  return {
    at: event.at,
    text: sentence ? sentence(event) : visibleLine(event.event), // a newer server may know more events
    kind: KINDS[event.event],
    link: event.event === "dead" ? { href, text: "Dead letters" } : null,
  };
}

function ownEvents(found) {
  const isWaiting = found.state === "scheduled";
  const cancelled = { at: undefined, text: `Cancelled; it was due ${timeText(found.due_at)}`, kind: "warn" };
  const list = [
    found.due_at && !isWaiting && found.state !== "cancelled" && { at: found.due_at, text: "Was due" },
    isWaiting && { at: found.due_at, text: "Will be due" },
    found.state === "cancelled" && cancelled,
    found.dispatched_at && { at: found.dispatched_at, text: "Dispatched to its queue" },
    found.accepted_at && { at: found.accepted_at, text: found.due_at ? "Accepted in its queue" : "Accepted" },
  ].filter(Boolean);
  return list.sort((a, b) => Date.parse(a.at ?? 0) - Date.parse(b.at ?? 0));
}
