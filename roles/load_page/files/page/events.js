// Server-sent events out of text that may be cut anywhere.

const LINE_END = /\r\n|\n|\r/;

export class Events {
  #rest = "";
  #data = [];

  /** Take the next piece of the stream; return the data of every event that it completed. */
  push(piece) {
    this.#rest += piece;
    const complete = [];
    for (let end; (end = LINE_END.exec(this.#rest)); ) {
      // The line feed that belongs to a carriage return may come with the next piece.
      if (end[0] === "\r" && end.index === this.#rest.length - 1) break;
      const line = this.#rest.slice(0, end.index);
      this.#rest = this.#rest.slice(end.index + end[0].length);
      if (line.startsWith("data:")) this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      if (line === "" && this.#data.length > 0) complete.push(this.#data.splice(0).join("\n"));
    }
    return complete;
  }
}
