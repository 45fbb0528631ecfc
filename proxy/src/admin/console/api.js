// Calls of the admin API. The cookie of the session goes along by itself; the other half of the
// session is kept for this tab and goes along as a header.
const KEY = "deltaweir-session";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const sessionHeader = () => ({ "x-deltaweir-session": sessionStorage.getItem(KEY) ?? "" });

async function asked(method, path, parameters, body) {
  const query = new URLSearchParams(Object.entries(parameters ?? {}).filter(([, value]) => value !== undefined));
  const headers = sessionHeader();
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(`/api/v1/${path}${query.size ? `?${query}` : ""}`, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const told = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  if (!answer.ok) throw new Refused(answer.status, told.error);
  return told;
}

export const get = (path, parameters) => asked("GET", path, parameters);
export const post = (path, parameters, body) => asked("POST", path, parameters, body);
export const put = (path, parameters, body) => asked("PUT", path, parameters, body);
export const remove = (path, parameters) => asked("DELETE", path, parameters);
/** A name as one element of a path. */
export const element = (name) => encodeURIComponent(name);

export const hasSession = () => sessionStorage.getItem(KEY) !== null;

let known;
/** What this session may do: `read` or `write`. */
export async function scope() {
  known ??= (await get("session")).scope;
  return known;
}

/** Opens a session with a token, or with the code that the page of a sign-in has. */
export async function logIn(shown) {
  known = undefined;
  const { key } = await asked("POST", "session", {}, shown);
  sessionStorage.setItem(KEY, key);
}

export async function logOut() {
  await asked("DELETE", "session").catch(() => undefined);
  known = undefined;
  sessionStorage.removeItem(KEY);
}
