// Searching in the lines of a log, and lines as elements with the hits marked.
import { parsed, plain } from "./ansi.js";

export const MOST_HITS = 5000;

// What finds a text, in capitals or not; null: nothing is searched.
export function finder(text) {
  return text ? new RegExp(text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&"), "gi") : null;
}

// How often it is found in a line.
export function count(find, raw) {
  return find ? [...plain(raw).matchAll(find)].length : 0;
}

// The element of a line. Its text is set as text, never as HTML.
export function lineElement(line, find) {
  const element = document.createElement("div");
  element.className = "log-line";
  const { pieces } = parsed(line.raw, line.style);
  const marks = find ? ranges(pieces.map((piece) => piece.text).join(""), find) : [];
  let place = 0;
  for (const piece of pieces) {
    for (const [from, to, marked] of split(place, place + piece.text.length, marks)) {
      const part = document.createElement(marked === null ? "span" : "mark");
      part.className = piece.classes;
      part.textContent = piece.text.slice(from - place, to - place);
      if (marked !== null) part.dataset.hit = marked;
      element.append(part);
    }
    place += piece.text.length;
  }
  return element;
}

function ranges(text, find) {
  return [...text.matchAll(find)].map((found) => [found.index, found.index + found[0].length]);
}

// Split a range where hits begin and end: [from, to, number of the hit or null].
export function split(from, to, marks) {
  const parts = [];
  let place = from;
  marks.forEach(([begin, end], number) => {
    if (end <= place || begin >= to) return;
    if (begin > place) parts.push([place, begin, null]);
    parts.push([Math.max(begin, place), Math.min(end, to), number]);
    place = Math.min(end, to);
  });
  if (place < to) parts.push([place, to, null]);
  return parts;
}
