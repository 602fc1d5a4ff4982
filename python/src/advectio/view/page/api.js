// All that is asked of the server. Addresses are relative: the token is part of the page's own.

/** A failure that the page shows in words. */
export class Refused extends Error {}

async function get(path, query, how) {
  const url = path + (query ? "?" + new URLSearchParams(query) : "");
  let answer;
  try {
    answer = await fetch(url);
  } catch {
    throw new Refused("the server does not answer");
  }
  if (!answer.ok) throw new Refused((await answer.text()).trim() || `the server answers ${answer.status}`);
  return how(answer);
}

const json = (path, query) => get(path, query, (answer) => answer.json());
const of = (stream, what) => `streams/${encodeURIComponent(stream)}${what}`;

export const describe = (stream) => json(of(stream, ""));
export const coast = (stream) => json(of(stream, "/coast"));
export const value = (stream, query) => json(of(stream, "/value"), query);
export const series = (stream, query) => json(of(stream, "/series"), query);
export const profile = (stream, query) => json(of(stream, "/profile"), query);
export const stats = (stream, query) => json(of(stream, "/stats"), query);

/** A plane: its header, and `values` (0: missing; 1 … max: low … high). Rows as in the file. */
export async function field(stream, query) {
  const body = await get(of(stream, "/field"), query, (answer) => answer.arrayBuffer());
  const length = new DataView(body).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 4, length)));
  const values = header.bits === 8 ? new Uint8Array(body, 4 + length) : new Uint16Array(body, 4 + length);
  return { ...header, values, bytes: body.byteLength };
}

/** Events for as long as the page is open; the browser connects again by itself. */
export function events({ state, lost }) {
  const source = new EventSource("events");
  source.addEventListener("state", (event) => state(JSON.parse(event.data)));
  source.addEventListener("error", lost);
}
