// Oblivious HTTP (RFC 9458) and its chunked form (draft-ietf-ohai-chunked-ohttp)
// on @hpke/core: opening requests and sealing their answers, nothing of HTTP.

import { AeadId, Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256, KdfId, KemId } from "@hpke/core";
import { XWing } from "@hpke/hybridkem-x-wing";

const HEADER_BYTES = 7; // key id, KEM, KDF, AEAD
const KEY_BYTES = 16;
const NONCE_BYTES = 12;
const RESPONSE_NONCE_BYTES = 16; // max(Nn, Nk)
const TAG_BYTES = 16;
const MAX_CHUNK_BYTES = 2 ** 14;
const MAX_SEALED_BYTES = MAX_CHUNK_BYTES + TAG_BYTES;

export const KEM_X25519 = KemId.DhkemX25519HkdfSha256;
export const KEM_XWING = 0x647a;

const encoder = new TextEncoder();
const FINAL = encoder.encode("final");
const NOTHING = new Uint8Array();

// The two formats; their labels keep one from passing as the other.
export const PLAIN = {
  request: encoder.encode("message/bhttp request"),
  response: encoder.encode("message/bhttp response"),
  requestType: "message/ohttp-req",
  responseType: "message/ohttp-res",
};
export const CHUNKED = {
  request: encoder.encode("message/bhttp chunked request"),
  response: encoder.encode("message/bhttp chunked response"),
  requestType: "message/ohttp-chunked-req",
  responseType: "message/ohttp-chunked-res",
};

export class OpenError extends Error {}
export class UnknownKeyError extends Error {}

export function join(...parts) {
  return new Uint8Array(Buffer.concat(parts.map((part) => new Uint8Array(part))));
}

function u16(...numbers) {
  return Uint8Array.from(numbers.flatMap((n) => [n >> 8, n & 0xff]));
}

// Variable-length integers (RFC 9000, section 16), up to 30 bits of them.
export function varint(n) {
  if (n < 2 ** 6) return Uint8Array.of(n);
  if (n < 2 ** 14) return u16(n | 0x4000);
  return u16((n >>> 16) | 0x8000, n & 0xffff);
}

function readVarint(data, at) {
  const width = 2 ** (data[at] >> 6);
  if (!(at + width <= data.length)) throw new OpenError();
  const octets = data.subarray(at, at + width);
  const value = octets.reduce((sum, octet, i) => sum * 256n + BigInt(i ? octet : octet & 0x3f), 0n);
  if (value > BigInt(MAX_SEALED_BYTES)) throw new OpenError();
  return [Number(value), at + width];
}

// One key of the gateway, and its configuration (RFC 9458, section 3.1).
export class Key {
  static async make(id, kemId) {
    const key = new Key();
    const kem = kemId === KEM_XWING ? new XWing() : new DhkemX25519HkdfSha256();
    key.suite = new CipherSuite({ kem, kdf: new HkdfSha256(), aead: new Aes128Gcm() });
    key.encBytes = kemId === KEM_XWING ? 1120 : 32;
    key.pair = await key.suite.kem.generateKeyPair();
    key.header = join([id], u16(kemId, KdfId.HkdfSha256, AeadId.Aes128Gcm));
    const publicKey = new Uint8Array(await key.suite.kem.serializePublicKey(key.pair.publicKey));
    key.config = join([id], u16(kemId), publicKey, u16(4, KdfId.HkdfSha256, AeadId.Aes128Gcm));
    return key;
  }
}

// The list of configurations (section 3.2): each behind its length.
export function keyList(keys) {
  return join(...keys.flatMap((key) => [u16(key.config.length), key.config]));
}

// Opens a whole request; what it returns also seals the one answer to it.
export async function open(keys, form, message) {
  const key = keys.find((key) => key.header[0] === message[0]);
  if (message.length >= HEADER_BYTES && !key) throw new UnknownKeyError();
  const header = message.subarray(0, HEADER_BYTES);
  const enc = message.slice(HEADER_BYTES, HEADER_BYTES + (key?.encBytes ?? 0));
  const sealed = message.subarray(HEADER_BYTES + enc.length);
  if (!key || enc.length !== key.encBytes || Buffer.compare(header, key.header)) throw new OpenError();
  try {
    const context = await key.suite.createRecipientContext({
      recipientKey: key.pair.privateKey,
      enc,
      info: join(form.request, [0], header),
    });
    const chunks = form === CHUNKED ? await openChunks(context, sealed) : [await context.open(sealed)];
    return { bhttp: join(...chunks.map((chunk) => new Uint8Array(chunk))), chunks: chunks.length, context, enc, form };
  } catch {
    throw new OpenError(); // one error, whatever the library said
  }
}

async function openChunks(context, data) {
  const chunks = [];
  for (let at = 0; ; ) {
    const [length, start] = readVarint(data, at);
    if (length === 0) {
      chunks.push(await context.open(data.slice(start), FINAL));
      return chunks;
    }
    at = start + length;
    if (length <= TAG_BYTES || at > data.length) throw new OpenError();
    chunks.push(await context.open(data.slice(start, at)));
  }
}

async function hmac(key, data) {
  const usable = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", usable, data));
}

// Seals one answer (section 4.4). Extract and Expand are HKDF itself, of one
// block each, because neither key nor nonce is longer than a digest.
export class Sealer {
  static async make({ context, enc, form }) {
    const sealer = new Sealer();
    sealer.nonce = crypto.getRandomValues(new Uint8Array(RESPONSE_NONCE_BYTES));
    const secret = new Uint8Array(await context.export(form.response, RESPONSE_NONCE_BYTES));
    const prk = await hmac(join(enc, sealer.nonce), secret);
    const key = (await hmac(prk, join(encoder.encode("key"), [1]))).slice(0, KEY_BYTES);
    sealer.aeadNonce = (await hmac(prk, join(encoder.encode("nonce"), [1]))).slice(0, NONCE_BYTES);
    sealer.key = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
    sealer.counter = 0;
    return sealer;
  }

  async seal(plaintext, additionalData = NOTHING) {
    const iv = Uint8Array.from(this.aeadNonce);
    const tail = new DataView(iv.buffer, NONCE_BYTES - 4);
    tail.setUint32(0, (tail.getUint32(0) ^ this.counter++) >>> 0);
    return new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv, additionalData }, this.key, plaintext));
  }

  // Seals chunks that are not the last, none of them empty.
  async chunks(data) {
    const parts = [];
    for (let at = 0; at < data.length; at += MAX_CHUNK_BYTES) {
      const sealed = await this.seal(data.subarray(at, at + MAX_CHUNK_BYTES));
      parts.push(varint(sealed.length), sealed);
    }
    return join(...parts);
  }

  // Seals the last chunk, which here is always empty.
  async final() {
    return join([0], await this.seal(NOTHING, FINAL));
  }
}
