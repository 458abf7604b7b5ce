/** Server-sent events read with fetch, because EventSource cannot send the key. */

import { send } from "./api.js";

/**
 * Read a stream until it ends.
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {(name: string, data: any) => void} onEvent
 */
export async function readEvents(path, signal, onEvent) {
  const response = await send(path, { signal, accept: "text/event-stream" });
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) deliver(block, onEvent);
  }
}

/**
 * @param {string} block
 * @param {(name: string, data: any) => void} onEvent
 */
function deliver(block, onEvent) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) onEvent(name, JSON.parse(data.join("\n")));
}
