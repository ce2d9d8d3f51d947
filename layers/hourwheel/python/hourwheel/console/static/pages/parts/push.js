/** Shows the state of the deliveries of a group with a push target. */

import { get } from "../../api.js";
import { h } from "../../dom.js";
import { count, time } from "../../format.js";
import { addressField } from "./group_values.js";
import { badges, facts, panel, visible } from "./panels.js";
import { groupPath } from "./paths.js";

const KINDS = { idle: null, running: "good", paused: "bad" };

/** Returns `{node, load(push)}`, with the target as the settings of the group have it. */
export function pushPanel(subject, group) {
  const own = panel("Push");
  const load = own.guard(async (push) => {
    if (!push) return own.show(h("p", { class: "note" }, "No target: consumers pull."));
    const state = await get(`${groupPath(subject, group)}/push`);
    return own.show(
      facts([
        ["state", badges([[state.state, KINDS[state.state]]])],
        ["paused until", state.paused_until && time(state.paused_until)],
        ["failures in a row", count(state.failures)],
        ["target", `${push.kind}: ${push[addressField(push.kind)]}`],
        [
          "batch",
          `${count(push.batch)} messages, ${count(push.concurrency)} at a time, ${push.timeout_seconds} s each`,
        ],
      ]),
      state.last_error && h("p", { class: "note bad" }, `The last error: ${visible(state.last_error)}`),
    );
  });
  return { node: own.node, load };
}
