// The server's API, asked from the page that it serves.

import { Events } from "./events.js";

// An APIError is an answer that is no success; status 0 is an error within a stream.
export class APIError extends Error {
  constructor(status, message) {
    super(message);
    this.name = "APIError";
    this.status = status;
  }
}

export class API {
  #key = "";

  // key is sent with every request; "" is none.
  get key() {
    return this.#key;
  }

  set key(key) {
    this.#key = key;
  }

  async #ask(path, init) {
    const headers = new Headers(init.headers);
    if (this.#key !== "") headers.set("Authorization", `Bearer ${this.#key}`);
    let response;
    try {
      // Relative, so that the page works below any path of a proxy.
      response = await fetch(new URL(path, document.baseURI), {
        ...init, headers, cache: "no-store", credentials: "same-origin", redirect: "error", referrerPolicy: "no-referrer",
      });
    } catch (err) {
      if (err.name === "AbortError") throw err;
      throw new APIError(0, "The server cannot be reached.");
    }
    if (response.ok) return response;
    let message = `The server answered with status ${response.status}.`;
    try {
      const { error } = await response.json();
      if (typeof error?.message === "string") message = error.message; // it names the field
    } catch {
      // A proxy's answer, perhaps: its status has to do.
    }
    throw new APIError(response.status, message);
  }

  // models returns the names of the model, and what requests may choose.
  async models() {
    const response = await this.#ask("v1/models", { method: "GET" });
    const { data } = await response.json();
    return data;
  }

  // stream posts a request and calls take with each chunk of its answer, and reading with the tokens of the prompt that
  // have been read and all of them, while the server says so. signal ends it; the server then stops decoding.
  async stream(path, body, signal, take, reading) {
    const response = await this.#ask(path, {
      method: "POST", signal, body: JSON.stringify({ ...body, stream: true }), headers: { "Content-Type": "application/json" },
    });
    let whole = false;
    const events = new Events((data) => {
      if (data === "[DONE]") whole = true;
      if (whole) return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new APIError(0, String(chunk.error.message));
      take(chunk);
    }, (comment) => {
      const [, read, of] = /^prompt (\d+)\/(\d+)$/.exec(comment) ?? [];
      if (of) reading(Number(read), Number(of));
    });
    const reader = response.body.getReader();
    try {
      for (;;) {
        const { value, done } = await reader.read().catch((err) => {
          throw err.name === "AbortError" ? err : new APIError(0, "The connection was lost.");
        });
        if (done) break;
        events.push(value);
      }
      events.end();
    } catch (err) {
      if (err.name === "AbortError" || err instanceof APIError) throw err;
      throw new APIError(0, `The answer cannot be read: ${err.message}.`);
    } finally {
      reader.cancel().catch(() => {}); // the connection is of no more use
    }
    if (!whole) throw new APIError(0, "The answer ended before it was whole.");
  }
}
