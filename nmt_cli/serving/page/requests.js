/**
 * What the page asks the server, and what it says when an answer does not come.
 *
 * A refused request is a `Refusal`; `persist` asks again as long as that may help.
 */

/** Why there is no answer: the HTTP status (0: the server cannot be reached), its message, and seconds to wait. */
export class Refusal extends Error {
  constructor(status, message = "", retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter || 0;
  }

  /** Whether asking again may help. */
  get passes() { return [0, 429, 503].includes(this.status); }

  /** What the user reads. */
  get words() {
    const detail = this.message ? ` (${this.message})` : "";
    switch (this.status) {
      case 0: return "The server does not answer.";
      case 403: return `This server needs a valid API key${detail}.`;
      case 413: return `The text is too long for this server${detail}.`;
      case 429: return `Too many requests for now.${this.retryAfter > 60 ? ` Try again in ${Math.ceil(this.retryAfter / 60)} minutes.` : ""}`;
      case 503: return "The server is busy.";
      default: return this.message || `The server failed with status ${this.status}.`;
    }
  }
}

/** The API key, kept as long as the tab is open. */
export const key = { get: () => sessionStorage.getItem("api_key") || "", set: (text) => sessionStorage.setItem("api_key", text) };

/** Return the server's answer to a request, with `body` as JSON. Throws Refusal, and AbortError once `signal` is aborted. */
export async function ask(path, signal, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...body, ...keyed() }) };
  const response = await fetch(path, { signal, ...options }).catch((error) => { throw signal.aborted ? error : new Refusal(0); });
  const answer = await response.json().catch(() => null);
  signal.throwIfAborted();
  return judged(response.status, answer, response.headers.get("Retry-After"));
}

/** Send a file. `progress` gets the share that has been sent, from 0 to 1. Throws as `ask` does. */
export function send(path, signal, fields, progress) {
  const form = new FormData(), request = new XMLHttpRequest(); // fetch does not report how much has been sent
  for (const [name, value] of Object.entries({ ...fields, ...keyed() })) form.append(name, value);
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => { request.abort(); reject(signal.reason); });
    request.upload.onprogress = ({ loaded, total }) => progress(loaded / total);
    request.upload.onload = () => progress(1);
    request.onerror = () => reject(new Refusal(0));
    request.onload = () => {
      try { resolve(judged(request.status, parsed(request.responseText), request.getResponseHeader("Retry-After"))); } catch (error) { reject(error); }
    };
    request.open("POST", path);
    request.send(form);
  });
}

/**
 * Return what `action` returns; call it again after a pause while the server is busy or gone.
 * `report` gets each refusal, and the seconds until the next try: null if there is none, because it would not help.
 */
export async function persist(action, signal, report) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const seconds = error.retryAfter || Math.min(2 ** attempt, 30);
      const helps = error.passes && seconds <= 60;
      report(error, helps ? seconds : null);
      if (!helps) throw error;
      await pause(seconds, signal);
    }
  }
}

/** Wait. Throws AbortError as soon as `signal` is aborted. */
export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}

const keyed = () => (key.get() ? { api_key: key.get() } : {});
const parsed = (text) => { try { return JSON.parse(text); } catch { return null; } };

function judged(status, answer, retryAfter) {
  if (status >= 200 && status < 300 && answer) return answer;
  throw new Refusal(status < 300 ? 0 : status, answer?.error ?? "", Number(retryAfter));
}
