// Sends, pulls and settles by a generated client.
import createClient from "openapi-fetch";
import type { paths } from "./hourwheel.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });
const group = { subject: "orders", group: "billing" };

const sent = await client.POST("/v1/subjects/{subject}/messages", {
  params: { path: { subject: "orders" } },
  body: { messages: [{ body: "one", key: "customer-42" }, { body: "two", delay: "90d" }] },
});
const pulled = await client.POST("/v1/subjects/{subject}/groups/{group}/pull", {
  params: { path: group },
  body: { consumer: "host-1" },
});
for (const pull of pulled.data?.pulls ?? []) {
  console.log(pull.messages.map((message) => `${message.body} ${message.key} ${message.offset}`).join(", "));
  const settled = await client.POST("/v1/subjects/{subject}/groups/{group}/ack", {
    params: { path: group },
    body: { settle: [{ receipt: pull.receipt }] },
  });
  console.log(settled.data?.results.map((each) => each.status).join(", "));
}
console.log(typeof sent.data?.results[1].scheduled_id);
const refused = await client.GET("/v1/subjects/{subject}", { params: { path: { subject: "nothing" } } });
console.log(refused.error?.status, refused.error?.type);
