// Server-sent events, read with `fetch`: unlike `EventSource` it tells what is wrong, and can be paused and
// go on later where it was, so that a tab in the background holds none of the browser's few connections.

// Yield the events of an answer: {name, id, data}. A comment, which only says that the server is there, is
// an event without data.
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (waiting + value).split("\n\n");
      waiting = parts.pop();
      for (const part of parts) yield event(part);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function event(part) {
  const found = { name: "message", id: null, data: null };
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) found.name = line.slice(7);
    else if (line.startsWith("id: ")) found.id = line.slice(4);
    else if (line.startsWith("data: ")) found.data = JSON.parse(line.slice(6));
  }
  return found;
}

// What a server says that refuses: it stays refused (`final`), or is worth another try.
export class Refused extends Error {
  constructor(message, final) {
    super(message);
    this.final = final;
  }
}

export async function refusal(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message || message;
  } catch {
    // No JSON: something in between has answered.
  }
  return new Refused(message, response.status < 500 && response.status !== 429);
}
