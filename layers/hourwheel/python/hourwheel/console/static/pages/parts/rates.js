/**
 * Keeps the readings of the overview, and computes rates from them.
 */

import { millis } from "../../format.js";

const RATE_MS = 30_000; // rates are means over this span, or over that between two readings where they are rarer
const KEPT_MS = 600_000; // sparklines show this span at most
const KEPT_POINTS = 60;
const KEPT_SUBJECTS = 2_000;

/** The readings of each subject: they outlive the page, so that a person who comes back sees rates at once. */
const readings = new Map();

/** Keeps the reading of a row of the overview. */
export function remember(row) {
  const points = readings.get(row.subject) ?? [];
  const atMs = millis(row.at);
  const last = points.at(-1);
  if (last && (row.end < last.end || row.settled < last.settled)) points.length = 0; // deleted, or sought back
  if (!last || atMs > last.atMs) points.push({ atMs, end: row.end, settled: row.settled });
  while (points.length > KEPT_POINTS || (points.length > 0 && atMs - points[0].atMs > KEPT_MS)) points.shift();
  readings.delete(row.subject); // to the end: the map drops the subject that was not seen for the longest time
  readings.set(row.subject, points);
  if (readings.size > KEPT_SUBJECTS) readings.delete(readings.keys().next().value);
}

/** Returns the readings of a subject, the oldest first. */
export function pointsOf(subject) {
  return readings.get(subject) ?? [];
}

/** Returns the rates in a second over the last half minute: `{produced, pulled, trend}`. Null: not known yet. */
export function ratesOf(points) {
  const last = points.at(-1);
  const first = points.findLast((point) => point.atMs <= last.atMs - RATE_MS) ?? points[0];
  const seconds = last && first ? (last.atMs - first.atMs) / 1_000 : 0;
  const trend = points.slice(1).map((point, i) => ((point.end - points[i].end) * 1_000) / (point.atMs - points[i].atMs));
  if (!seconds) return { produced: null, pulled: null, trend };
  return { produced: (last.end - first.end) / seconds, pulled: (last.settled - first.settled) / seconds, trend };
}

/** Returns what an open page costs in an hour on AWS, from the calls that it has made; null before it is known. */
export function hourlyUsd({ calls, items, sinceMs }, nowMs, { callUsd, readUsd }) {
  const hours = (nowMs - sinceMs) / 3_600_000;
  return hours > 1 / 120 ? (calls * callUsd + items * readUsd) / hours : null;
}
