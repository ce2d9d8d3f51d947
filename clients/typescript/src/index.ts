export { Client, RequestError, type ClientOptions, type NewMessage, type SendResult } from "./client.js";
export { Consumer, type ConsumerOptions, type Handler } from "./consumer.js";
export { Message, Reject, Retry } from "./message.js";
export { Unverified, verify, type Headers } from "./webhooks.js";
