/** Checks that a request comes from Hourwheel, by the signatures of Standard Webhooks 1.0.0. */

/** Says that a request must not be trusted, and why. Answer it with 401 and do nothing else. */
export class Unverified extends Error {
  override readonly name = "Unverified";
}

/** Headers as Node has them, or as `fetch` does. Names are compared in lower case. */
export type Headers = Record<string, string | string[] | undefined> | { get(name: string): string | null };

/**
 * Resolves if the request was signed with `secret` and made within `toleranceSeconds` of now; else rejects with
 * `Unverified`. `body` is the body as it arrived, before anything parses it.
 */
export async function verify(
  secret: string,
  headers: Headers,
  body: Uint8Array | string,
  toleranceSeconds = 300,
): Promise<void> {
  const key = await crypto.subtle.importKey("raw", decoded(secret), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  const [id, seconds, signatures] = ["id", "timestamp", "signature"].map((name) => header(headers, `webhook-${name}`)) as [
    string,
    string,
    string,
  ];
  if (!/^[0-9]{1,15}$/.test(seconds)) throw new Unverified("the header webhook-timestamp is not a time in Unix seconds");
  const age = Date.now() / 1_000 - Number(seconds);
  if (Math.abs(age) > toleranceSeconds) throw new Unverified(`webhook-timestamp is ${Math.abs(age).toFixed(0)} s from now`);
  const content = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const signed = joined(new TextEncoder().encode(`${id}.${seconds}.`), content);
  for (const entry of signatures.split(" ")) {
    const [version, text = ""] = entry.split(",", 2);
    if (version === "v1" && isBase64(text) && (await crypto.subtle.verify("HMAC", key, bytes(text), signed))) return;
  }
  throw new Unverified("no v1 signature of webhook-signature is right: it was made with another secret, or another body");
}

function header(headers: Headers, name: string): string {
  const found =
    typeof headers["get"] === "function"
      ? (headers as { get(name: string): string | null }).get(name)
      : Object.entries(headers).find(([each]) => each.toLowerCase() === name)?.[1];
  const value = Array.isArray(found) ? found[0] : found;
  if (!value) throw new Unverified(`the header ${name} is missing`);
  return value;
}

function decoded(secret: string): Uint8Array<ArrayBuffer> {
  const encoded = secret.startsWith("whsec_") ? secret.slice("whsec_".length) : "";
  if (!encoded || !isBase64(encoded)) throw new TypeError("a signing secret is whsec_ and base64");
  return bytes(encoded);
}

function isBase64(text: string): boolean {
  return text.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(text);
}

function bytes(encoded: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
