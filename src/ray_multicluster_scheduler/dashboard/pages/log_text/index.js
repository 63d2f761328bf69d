export { LogBuffer } from "./buffer.js";
export { events, refusal } from "./stream.js";
export { MOST_HITS, count, finder, lineElement } from "./search.js";
