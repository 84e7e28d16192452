// A gateway that is its own target, on bhttp-js. Its answers are made for tests:
//
//   /echo   the request's content comes back, in BHTTP of known length
//   /steps  four pieces of indeterminate length; each waits for a POST to /next
//
// Before decapsulation every failure but an unknown key is one constant 422.

import { once } from "node:events";
import http from "node:http";
import { BHttpDecoder, BHttpEncoder } from "bhttp-js";
import { CHUNKED, KEM_X25519, KEM_XWING, Key, PLAIN, Sealer, UnknownKeyError, join, keyList, open, varint } from "./ohttp.mjs";

const MAX_REQUEST_BYTES = 2 * 2 ** 20;
const STEPS = 4;
const PROBLEM_KEY = "https://iana.org/assignments/http-problem-types#ohttp-key";

const encoder = new TextEncoder();
const keys = await Promise.all([Key.make(5, KEM_X25519), Key.make(6, KEM_XWING)]);
const waiting = [];

function refuse(response, status, type = "about:blank") {
  response.writeHead(status, { "Content-Type": "application/problem+json" });
  response.end(JSON.stringify({ type, status }));
}

async function readBody(request) {
  const parts = [];
  let length = 0;
  for await (const part of request) {
    length += part.length;
    if (length > MAX_REQUEST_BYTES) return null;
    parts.push(part);
  }
  return join(...parts);
}

async function answer(request, response) {
  const form = [PLAIN, CHUNKED].find((form) => form.requestType === request.headers["content-type"]);
  if (!form) return refuse(response, 415);
  const body = await readBody(request);
  if (!body) return refuse(response, 413);
  let opened;
  try {
    opened = await open(keys, form, body);
  } catch (error) {
    return error instanceof UnknownKeyError ? refuse(response, 422, PROBLEM_KEY) : refuse(response, 422);
  }
  const sealer = await Sealer.make(opened);
  response.writeHead(200, { "Content-Type": form.responseType, ...(form === CHUNKED && { Incremental: "?1" }) });
  await reply(opened, sealer, response);
}

async function reply(opened, sealer, response) {
  let request;
  try {
    request = new BHttpDecoder().decodeRequest(opened.bhttp);
  } catch {
    return send(opened, sealer, response, new Response(null, { status: 400 }));
  }
  const { pathname } = new URL(request.url);
  if (pathname === "/steps" && opened.form === CHUNKED) return sendSteps(sealer, response);
  if (pathname !== "/echo") return send(opened, sealer, response, new Response(null, { status: 404 }));
  const headers = {
    "content-type": request.headers.get("content-type") ?? "",
    "x-target": `${request.method} ${request.url}`,
    "x-chunks": String(opened.chunks),
  };
  return send(opened, sealer, response, new Response(await request.arrayBuffer(), { headers }));
}

async function send({ form }, sealer, response, inner) {
  const bhttp = await new BHttpEncoder().encodeResponse(inner);
  response.write(sealer.nonce);
  if (form === PLAIN) return response.end(await sealer.seal(bhttp));
  response.write(await sealer.chunks(bhttp));
  return response.end(await sealer.final());
}

// bhttp-js writes known lengths only, so this form is written here (RFC 9292, 3.2).
async function sendSteps(sealer, response) {
  const noFields = varint(0);
  response.write(join(sealer.nonce, await sealer.chunks(join(varint(3), varint(200), noFields))));
  for (let step = 0; step < STEPS; step++) {
    await new Promise((resolve) => waiting.push(resolve));
    const piece = encoder.encode(`step ${step}\n`);
    response.write(await sealer.chunks(join(varint(piece.length), piece)));
  }
  response.write(await sealer.chunks(join(varint(0), noFields)));
  response.end(await sealer.final());
}

// The test asks for the next piece, perhaps before the answer waits for it.
async function next(response) {
  while (!waiting.length) await new Promise((resolve) => setTimeout(resolve, 5));
  waiting.shift()();
  response.end();
}

function route(request, response) {
  switch (`${request.method} ${request.url}`) {
    case "GET /keys":
      response.writeHead(200, { "Content-Type": "application/ohttp-keys" });
      return response.end(keyList(keys));
    case "POST /gateway":
      // A failure from here on is inside an answer: only its end shows it.
      return answer(request, response).catch(() => response.destroy());
    case "POST /next":
      return next(response);
    default:
      return refuse(response, 404);
  }
}

const server = http.createServer({ headersTimeout: 5000, requestTimeout: 20000 }, route);
server.listen(0, "127.0.0.1");
await once(server, "listening");
console.log(JSON.stringify({ listen: `127.0.0.1:${server.address().port}` }));
