/**
 * Finds the page that an address names.
 */

const ROUTES = [
  ["", "overview"],
  ["subjects/:subject", "subject"],
  ["subjects/:subject/browse", "browse"],
  ["subjects/:subject/trace", "trace"],
  ["subjects/:subject/groups/:group", "group"],
  ["subjects/:subject/groups/:group/dead", "dead"],
  ["delayed", "delayed"],
  ["cells", "cells"],
  ["pipeline", "pipeline"],
];

/** Returns `{name, params, query}` of the page that an address names, or null. */
export function match(hash) {
  const [where, search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = where.split("/").filter((part) => part !== "");
  for (const [pattern, name] of ROUTES) {
    const wanted = pattern.split("/").filter((part) => part !== "");
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((word, i) => {
      if (!word.startsWith(":")) return word === parts[i];
      params[word.slice(1)] = decoded(parts[i]);
      return true;
    });
    if (fits) return { name, params, query: Object.fromEntries(new URLSearchParams(search)) };
  }
  return null;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
