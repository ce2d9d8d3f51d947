/** Finds the queue of a key, as the server does: CRC-32 (as in zlib) of the key's UTF-8 bytes. */

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

export function crc32(text) {
  let value = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) value = TABLE[(value ^ byte) & 0xff] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

export const queueOf = (key, queues) => crc32(key) % queues;
