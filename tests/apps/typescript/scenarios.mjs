// Uses the consumer as an application would: node scenarios.mjs NAME URL. Prints one line of JSON for each event.
import { Client, Consumer, Reject, Retry } from "./dist/index.js";

const [name, url] = process.argv.slice(2);
const client = new Client(url);
const tell = (...words) => console.log(JSON.stringify(words));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Runs a consumer until the handler has been called this many times and has ended. */
async function consume(calls, handle, options = {}) {
  let ended = 0;
  const consumer = new Consumer(
    url,
    "orders",
    "billing",
    async (message) => {
      try {
        await handle(message);
      } finally {
        ended += 1;
        if (ended === calls) setTimeout(() => consumer.stop());
      }
    },
    options,
  );
  await consumer.run();
}

const answered = (status, body) => new Response(JSON.stringify(body), { status });

/** Makes requests as if the cell of the first receipt that is settled were out of reach for this long. */
function fetchBesideLostCell(ms) {
  const until = Date.now() + ms;
  let away;
  return async (url, request) => {
    const body = JSON.parse(request.body);
    const settle = body.settle ?? [];
    away ??= settle[0]?.receipt;
    const isAway = settle.map((each) => each.receipt === away && Date.now() < until);
    if (!isAway.includes(true)) return fetch(url, request);
    const left = settle.filter((_, at) => !isAway[at]);
    if (url.endsWith("/ack") && !left.length) return answered(503, { type: "urn:hourwheel:receipt-unavailable" });
    const answer = await fetch(url, { ...request, body: JSON.stringify({ ...body, settle: left }) });
    if (!answer.ok) return answer;
    const found = await answer.json();
    const results = found.results ?? found.settled ?? [];
    const all = isAway.map((away) => (away ? { status: "unavailable" } : results.shift()));
    return answered(200, found.results ? { results: all } : { ...found, settled: all });
  };
}

/** Makes requests of which the first one with two settlements has a wrong receipt. */
function fetchWithWrongReceipt() {
  let wrong;
  return (url, request) => {
    const body = JSON.parse(request.body);
    if (wrong === undefined && body.settle?.length > 1) wrong = body.settle[0].receipt;
    const settle = body.settle?.map((each) => (each.receipt === wrong ? { ...each, receipt: "wrong" } : each));
    return fetch(url, { ...request, body: JSON.stringify({ ...body, settle }) });
  };
}

const scenarios = {
  async everything() {
    await client.send("orders", Array.from({ length: 200 }, (_, at) => ({ body: JSON.stringify({ at }), key: `k${at % 7}` })));
    const seen = [];
    await consume(200, async (message) => {
      await pause(1);
      seen.push(message.json().at);
    }, { concurrency: 8 });
    tell(seen.length, new Set(seen).size);
  },
  async fields() {
    const headers = { "content-type": "text/plain" };
    await client.send("orders", [{ body_base64: "AP8=", key: "k", tags: ["eu"], headers, id: "order-7" }]);
    await consume(1, (message) => {
      tell(message.id, [...message.bytes], message.key, message.tags, message.headers, message.attempt);
    });
  },
  async outcomes() {
    await client.send("orders", ["busy", "broken", "bad", "wrong"].map((body) => ({ body })));
    await consume(7, (message) => {
      tell(message.text, message.attempt, message.raw.detail ?? null);
      if (message.text === "bad") throw new Reject("no price");
      if (message.attempt > 1) return;
      if (message.text === "busy") throw new Retry("later", 1);
      if (message.text === "wrong") throw new Retry("later", "soon");
      throw new TypeError("x is not a function\nat line 1");
    });
  },
  async slow() {
    await client.send("orders", [{ body: "slow" }]);
    await consume(1, async (message) => {
      await pause(3_500);
      tell(message.text, message.lost);
    }, { leaseSeconds: 1 });
  },
  async deaf() {
    await client.send("orders", [{ body: "deaf" }]);
    await consume(1, async (message) => {
      const until = Date.now() + 2_500;
      while (Date.now() < until); // nothing of this process can renew the lease
      await pause(500);
      tell(message.lost, message.signal.aborted);
    }, { leaseSeconds: 1 });
  },
  async late() {
    // The message comes when the pull has waited longer than its lease is.
    setTimeout(() => client.send("orders", [{ body: "late" }]), 3_000);
    await consume(1, async (message) => {
      await pause(600);
      tell(message.text, message.lost);
    }, { leaseSeconds: 2 });
  },
  async unavailable() {
    const send = (body) => client.send("orders", [{ body }]);
    await send("first");
    setTimeout(() => send("second"), 300);
    await consume(2, async (message) => {
      if (message.text === "second") await pause(3_000);
      tell(message.text, message.lost);
    }, { leaseSeconds: 1, concurrency: 2, maxMessages: 1, fetch: fetchBesideLostCell(2_500) });
  },
  async invalid() {
    await client.send("orders", [{ body: "one" }]);
    setTimeout(() => client.send("orders", [{ body: "two" }]), 200);
    // Both are decided in the same turn, and so settled by one request.
    let both;
    const together = new Promise((resolve) => (both = resolve));
    let calls = 0;
    await consume(2, async (message) => {
      if (++calls === 2) both();
      await together;
      tell(message.text);
    }, { concurrency: 2, maxMessages: 1, fetch: fetchWithWrongReceipt() });
  },
  async emoji() {
    await client.send("orders", [{ body: "one" }]);
    await consume(1, (message) => {
      throw new Reject("x".repeat(999) + "\u{1F600}\u{1F600}");
    });
  },
  async signal() {
    await client.send("orders", Array.from({ length: 4 }, (_, at) => ({ body: `${at}` })));
    await new Consumer(url, "orders", "billing", async (message) => {
      tell("began", message.text);
      await pause(1_000);
      tell("ended", message.text);
    }).run();
    tell("over");
  },
  async endless() {
    await client.send("orders", [{ body: "endless" }]);
    await new Consumer(url, "orders", "billing", async (message) => {
      tell("began");
      await new Promise((resolve) => message.signal.addEventListener("abort", resolve));
      tell("lost");
    }, { drainSeconds: 0.3 }).run();
    tell("over");
  },
  async ordered() {
    await client.send("orders", [0, 1, 2].map((at) => ({ body: `${at}`, key: "k" })));
    await consume(4, (message) => {
      tell(message.text, message.attempt);
      if (message.text === "0" && message.attempt === 1) throw new Error("first");
    });
  },
  async outage() {
    const seen = new Set();
    let calls = 0;
    const consumer = new Consumer(url, "orders", "billing", async (message) => {
      calls += 1;
      if (calls === 10) tell("ten");
      await pause(20);
      seen.add(message.text);
      if (seen.size === 60) setTimeout(() => consumer.stop());
    }, { concurrency: 2, leaseSeconds: 2 });
    await Promise.all([
      consumer.run(),
      client.send("orders", Array.from({ length: 60 }, (_, at) => ({ body: `${at}` }))),
    ]);
    tell(seen.size);
  },
  async refused() {
    const consumer = new Consumer(url, "orders", "billing", () => {}, { token: "wrong" });
    await consumer.run().catch((error) => tell(error.name, error.status, error.type));
  },
  async poison() {
    // The first message ends its process. The others are held with it.
    await new Consumer(url, "orders", "billing", async (message) => {
      tell(message.text, message.attempt);
      if (message.text === "poison") process.exit(3);
      await pause(50);
    }, { concurrency: 2, leaseSeconds: 1 }).run();
  },
  async deleted() {
    await client.send("orders", [{ body: "first" }, { body: "second" }]);
    let calls = 0;
    const consumer = new Consumer(url, "orders", "billing", async (message) => {
      calls += 1;
      tell(message.text);
      if (message.text === "after") return void setTimeout(() => consumer.stop());
      if (calls > 1) return;
      await fetch(`${url}/v1/subjects/orders/groups/billing`, { method: "DELETE" });
      await client.post("/v1/subjects/orders/groups/billing/pull", { consumer: "other", max_messages: 1 });
      await client.send("orders", [{ body: "after" }]);
    });
    await consumer.run();
  },
};

await scenarios[name]();
