// Server-sent events (WHATWG HTML, section 9.2) out of the bytes of a response. EventSource cannot
// send the body of a request.

// mostCharacters bounds one event: what is not complete has to be held.
const mostCharacters = 16 << 20;

export class Events {
  #decoder = new TextDecoder(); // keeps the first bytes of a character until the others come
  #emit;
  #comment;
  #line = "";
  #data = [];
  #size = 0; // characters of #data
  #return = false; // the last character was a carriage return, so that a line feed belongs to it

  // emit is called with the data of each event, comment with the text of each comment.
  constructor(emit, comment = () => {}) {
    this.#emit = emit;
    this.#comment = comment;
  }

  // push takes the next bytes, which may end anywhere.
  push(bytes) {
    this.#feed(this.#decoder.decode(bytes, { stream: true }));
  }

  // end takes the end of the response. An event that no empty line follows is not complete and
  // does not count.
  end() {
    this.#feed(this.#decoder.decode());
  }

  #feed(text) {
    if (text === "") return;
    if (this.#return && text.startsWith("\n")) text = text.slice(1);
    this.#return = text.endsWith("\r");
    let from = 0;
    for (const end of text.matchAll(/\r\n|\r|\n/g)) {
      this.#take(this.#line + text.slice(from, end.index));
      this.#line = "";
      from = end.index + end[0].length;
    }
    this.#line += text.slice(from);
    if (this.#line.length + this.#size > mostCharacters) {
      throw new Error(`an event has more than ${mostCharacters} characters`);
    }
  }

  #take(line) {
    if (line === "") {
      if (this.#data.length > 0) this.#emit(this.#data.join("\n"));
      this.#data = [];
      this.#size = 0;
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (field === "") this.#comment(value);
    if (field !== "data") return; // the others say nothing here
    this.#data.push(value);
    this.#size += value.length;
  }
}
