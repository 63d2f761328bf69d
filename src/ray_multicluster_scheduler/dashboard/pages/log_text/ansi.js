// The text of a log, line by line: colours become classes, and whatever else would steer a terminal is shown
// as a harmless sign. Nothing here makes HTML.

const ESCAPE = "\\x1b(?:\\[([0-9;:]*)m|\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\\x07\\x1b]*(?:\\x07|\\x1b\\\\)?|[ -/]*[0-~])?";
// Controls, and the marks that change the direction of writing: with these a line reads otherwise than it is.
const CONTROLS = "[\\x00-\\x08\\x0a-\\x1a\\x1c-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]";
const SPECIAL = new RegExp(`${ESCAPE}|${CONTROLS}`, "g");
const HAS_SPECIAL = new RegExp(`\\x1b|${CONTROLS}`);
const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"] };

export const PLAIN = Object.freeze({});

// The pieces of a line that follows text of this style: [{text, classes}], and the style of what comes next.
export function parsed(line, style = PLAIN) {
  if (!HAS_SPECIAL.test(line)) return { pieces: line ? [{ text: line, classes: classes(style) }] : [], style };
  const pieces = [];
  let place = 0;
  let text = "";
  const end = () => {
    if (text) pieces.push({ text, classes: classes(style) });
    text = "";
  };
  for (const found of line.matchAll(SPECIAL)) {
    text += line.slice(place, found.index);
    place = found.index + found[0].length;
    if (found[1] !== undefined) {
      end();
      style = changed(style, found[1]);
    } else if (!found[0].startsWith("\x1b")) {
      text += sign(found[0]);
    }
  }
  text += line.slice(place);
  end();
  return { pieces, style };
}

// The same as one text, for searching.
export function plain(line) {
  return HAS_SPECIAL.test(line) ? parsed(line).pieces.map((piece) => piece.text).join("") : line;
}

function sign(control) {
  const code = control.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}

function classes(style) {
  const found = [];
  for (const [name, value] of Object.entries(style)) {
    if (name === "fg" || name === "bg") found.push(`ansi-${name}-${value}`);
    else found.push(`ansi-${name}`);
  }
  return found.join(" ");
}

function changed(style, codes) {
  const next = { ...style };
  const numbers = codes.split(/[;:]/).map((code) => Number(code || 0));
  while (numbers.length) {
    const code = numbers.shift();
    if (code === 0) Object.keys(next).forEach((name) => delete next[name]);
    else if (FLAGS[code]) next[FLAGS[code]] = true;
    else if (ENDS[code]) ENDS[code].forEach((name) => delete next[name]);
    else if (code >= 30 && code <= 37) next.fg = code - 30;
    else if (code >= 90 && code <= 97) next.fg = code - 82;
    else if (code >= 40 && code <= 47) next.bg = code - 40;
    else if (code >= 100 && code <= 107) next.bg = code - 92;
    else if (code === 39) delete next.fg;
    else if (code === 49) delete next.bg;
    else if (code === 38 || code === 48) take(next, code === 38 ? "fg" : "bg", numbers);
  }
  return next;
}

// One of 256 colours or of all: the nearest of the sixteen, which can be read on light and on dark.
function take(style, name, numbers) {
  const kind = numbers.shift();
  if (kind === 5) {
    const index = numbers.shift() || 0;
    style[name] = index < 16 ? index : nearest(...ofPalette(index));
  } else if (kind === 2) {
    style[name] = nearest(...numbers.splice(0, 3).map((each) => each || 0));
  }
}

function ofPalette(index) {
  if (index >= 232) return Array(3).fill(8 + 10 * (index - 232));
  const level = (each) => (each ? 55 + 40 * each : 0);
  const place = index - 16;
  return [level(Math.floor(place / 36)), level(Math.floor(place / 6) % 6), level(place % 6)];
}

function nearest(red = 0, green = 0, blue = 0) {
  const most = Math.max(red, green, blue);
  if (most < 60) return 0;
  const bits = [red, green, blue].map((each) => (each > most / 2 ? 1 : 0));
  return bits[0] + 2 * bits[1] + 4 * bits[2] + (most > 200 ? 8 : 0);
}
