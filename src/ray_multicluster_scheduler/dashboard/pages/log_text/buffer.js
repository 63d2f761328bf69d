// The last lines of a log that grows. What is older than the limits is dropped, a block of lines at a time.
import { parsed, PLAIN } from "./ansi.js";

export const BLOCK_LINES = 200;
export const MOST_LINES = 20_000;
export const MOST_CHARS = 5_000_000;
// A longer line is broken: one without an end must not be all that there is.
export const MOST_LINE_CHARS = 10_000;

export class LogBuffer {
  constructor({ lines = MOST_LINES, chars = MOST_CHARS } = {}) {
    this.most = { lines, chars };
    this.clear();
  }

  clear() {
    // Each block has `lines` of {raw, style}: the text, and the style in which it begins.
    this.blocks = [];
    this.lines = this.chars = this.dropped = 0;
    // What has no end of line yet.
    this.open = "";
    this.style = PLAIN;
  }

  get empty() {
    return !this.lines && !this.open && !this.dropped;
  }

  // Take what has come next.
  feed(text) {
    const lines = (this.open + text).split("\n");
    this.open = lines.pop();
    for (const line of lines) this.add(settled(line));
    this.open = withoutOverwritten(this.open);
    while (this.open.length > MOST_LINE_CHARS) {
      this.add(this.open.slice(0, MOST_LINE_CHARS));
      this.open = this.open.slice(MOST_LINE_CHARS);
    }
    while (this.blocks.length > 1 && (this.lines > this.most.lines || this.chars > this.most.chars)) this.drop();
  }

  // Nothing more comes: a last line without an end is a line.
  finish() {
    if (this.open) this.add(settled(this.open));
    this.open = "";
  }

  add(raw) {
    for (let place = 0; place === 0 || place < raw.length; place += MOST_LINE_CHARS) {
      this.put(raw.slice(place, place + MOST_LINE_CHARS));
    }
  }

  put(raw) {
    let block = this.blocks[this.blocks.length - 1];
    if (!block || block.lines.length >= BLOCK_LINES) {
      block = { lines: [], chars: 0 };
      this.blocks.push(block);
    }
    block.lines.push({ raw, style: this.style });
    block.chars += raw.length + 1;
    this.lines += 1;
    this.chars += raw.length + 1;
    if (raw.includes("\x1b")) this.style = parsed(raw, this.style).style;
  }

  drop() {
    const block = this.blocks.shift();
    this.lines -= block.lines.length;
    this.chars -= block.chars;
    this.dropped += block.lines.length;
  }

  // All that is kept, as it came, for a file.
  text() {
    const kept = this.blocks.flatMap((block) => block.lines.map((line) => line.raw + "\n"));
    return kept.join("") + this.open;
  }
}

// A carriage return begins the line anew, as progress bars do it: what was written last is the line.
function settled(line) {
  const drafts = line.split("\r").filter(Boolean);
  return drafts.length ? drafts[drafts.length - 1] : "";
}

// The same for a line that may still grow: a return at its very end may belong to the end of the line.
function withoutOverwritten(open) {
  const cut = open.lastIndexOf("\r", open.length - 2);
  return cut < 0 ? open : open.slice(cut + 1);
}
