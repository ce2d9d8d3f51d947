/** Keeps the readings of the last minutes, so that a chart goes on where it was when a person comes back to a page. */

const READINGS = 600; // half an hour of readings every three seconds
const NAMES = 50; // the readings of more pages than a person follows are forgotten, the oldest first

const histories = new Map();

/** Adds `{at_ms, …numbers}` to the readings under `name`, and returns all of them, the oldest first. */
export function record(name, reading) {
  const readings = histories.get(name) ?? [];
  histories.delete(name);
  if (!readings.length || reading.at_ms > readings.at(-1).at_ms) readings.push(reading);
  if (readings.length > READINGS) readings.splice(0, readings.length - READINGS);
  histories.set(name, readings);
  if (histories.size > NAMES) histories.delete(histories.keys().next().value);
  return readings;
}

/** Returns `[time in ms, change of the counter per second]` between successive readings. A counter that falls was
 * reset, because its subject was deleted and created again: there is no rate over that gap. */
export function rates(readings, counter) {
  const points = [];
  for (let i = 1; i < readings.length; i += 1) {
    const before = readings[i - 1];
    const now = readings[i];
    if (now[counter] >= before[counter]) {
      points.push([now.at_ms, ((now[counter] - before[counter]) * 1000) / (now.at_ms - before.at_ms)]);
    }
  }
  return points;
}

/** Returns `[time in ms, value]` of each reading. */
export function values(readings, name) {
  return readings.map((reading) => [reading.at_ms, reading[name]]);
}
