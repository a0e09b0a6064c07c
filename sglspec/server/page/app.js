// The page at `/`: programs, a form from each one's input schema, and a run as it happens.
// Whatever comes from programs, users and the model becomes a text node, never markup.

import { formOf } from "/page/form.js";
import { View } from "/page/view.js";

const $ = (id) => document.getElementById(id);
let key = "";
let running = null; // { id, stop: AbortController }

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...(options.headers ?? {}) };
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
  if (answer.ok) return answer;
  let said = null;
  try {
    said = await answer.json();
  } catch {
    // not a problem of ours: a proxy's page, perhaps
  }
  const errors = (said?.errors ?? []).map((error) => `${error.message}${error.help ? ` ${error.help}` : ""}`);
  throw new Refused(answer.status, [said?.title ?? `The server answered ${answer.status}.`, said?.detail, ...errors]
    .filter((text, place, all) => text && all.indexOf(text) === place).join("\n"));
}

function complain(error) {
  if (error instanceof Refused && error.status === 401) {
    $("locked").hidden = false;
    $("problem").textContent = key ? "This key is not valid." : "";
    $("key").focus();
    return;
  }
  $("problem").textContent = error instanceof Refused ? error.message : `The server cannot be reached: ${error.message}`;
}

async function attempt(work) {
  $("problem").textContent = "";
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  }
}

async function list(after = "") {
  const page = await (await ask(`/v1/programs?limit=100${after ? `&after=${encodeURIComponent(after)}` : ""}`)).json();
  $("locked").hidden = true;
  $("choose").hidden = false;
  if (!after) $("programs").replaceChildren();
  for (const program of page.data) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = program.name;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => attempt(() => choose(program.name, button)));
    const item = document.createElement("li");
    item.append(button);
    $("programs").append(item);
  }
  if (!$("programs").children.length) {
    const none = document.createElement("li");
    none.textContent = "There are no programs yet. `sglspec deploy FILE` brings one here.";
    $("programs").append(none);
  }
  $("more").hidden = !page.next;
  $("more").onclick = () => attempt(() => list(page.next));
}

async function about() {
  try {
    const { data } = await (await ask("/v1/models")).json();
    $("model").textContent = data[0]?.id ?? "";
  } catch {
    $("model").textContent = ""; // the key may not see it
  }
}

async function choose(name, button) {
  const path = `/v1/programs/${encodeURIComponent(name)}`;
  const [program, schema] = await Promise.all([
    ask(path).then((answer) => answer.json()),
    ask(`${path}/input.schema.json`).then((answer) => answer.json()),
  ]);
  for (const other of $("programs").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
  $("run-title").textContent = name;
  $("description").textContent = program.description ?? schema.description ?? "";
  const { fields, read } = formOf(schema);
  const go = document.createElement("button");
  go.type = "submit";
  go.className = "main";
  go.textContent = "Run";
  $("inputs").replaceChildren(...fields, go);
  $("inputs").onsubmit = (event) => {
    event.preventDefault();
    attempt(() => run(path, read()));
  };
  $("run").hidden = false;
  ($("inputs").querySelector("textarea, input, select") ?? go).focus();
}

async function run(path, inputs) {
  running?.stop.abort();
  const own = { id: null, stop: new AbortController() };
  running = own;
  const view = new View($("branches"), $("tree"), $("state"));
  $("output").hidden = false;
  $("result-box").hidden = true;
  $("stop").hidden = false;
  let ended = false;
  try {
    const answer = await ask(`${path}/runs`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
      body: JSON.stringify({ inputs }),
      signal: own.stop.signal,
    });
    for await (const event of events(answer.body)) {
      own.id = event.run_id;
      view.show(event);
      if (/^run\.(succeeded|failed|cancelled|expired|aborted)$/.test(event.type)) {
        ended = true;
        finish(event);
      }
    }
    if (!ended) throw new Error("the stream was cut off");
  } catch (error) {
    if (!ended) $("state").textContent = error.name === "AbortError" ? "Stopped." : "Not finished.";
    throw error;
  } finally {
    if (running === own) {
      running = null;
      $("stop").hidden = true;
    }
  }
}

function finish(event) {
  $("result-box").hidden = false;
  $("result").textContent = JSON.stringify(event.outputs ?? {}, null, 2);
  const usage = event.usage;
  $("usage").textContent = usage
    ? `${usage.generated_tokens ?? 0} tokens generated, ${usage.computed_tokens ?? 0} computed, ${usage.reused_tokens ?? 0} reused`
    : "";
  if (event.error && event.type !== "run.cancelled") $("problem").textContent = `${event.error.code}: ${event.error.message}`;
}

// Server-sent events over fetch: `EventSource` can neither post nor send a key.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}

$("stop").addEventListener("click", () => attempt(async () => {
  if (!running) return;
  $("state").textContent = "Stopping …";
  if (running.id) await ask(`/v1/runs/${running.id}/cancel`, { method: "POST" });
  else running.stop.abort();
}));

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  $("key").value = "";
  attempt(start);
});

async function start() {
  await list();
  await about();
}

attempt(start);
