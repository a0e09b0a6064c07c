// A run on the page: what each branch wrote, and a tree of what happened.

const MOST = 2000; // entries of the tree; a loop may take many more steps than anybody reads
const STATES = {
  "run.queued": "Waiting …",
  "run.started": "Running …",
  "run.succeeded": "Done.",
  "run.failed": "Failed.",
  "run.cancelled": "Stopped.",
  "run.expired": "It took too long.",
  "run.aborted": "It could not begin in time.",
};

export class View {
  constructor(branches, tree, state) {
    this.boxes = branches;
    this.state = state;
    this.tree = tree;
    this.texts = new Map();
    this.nodes = new Map();
    this.entries = 0;
    branches.replaceChildren();
    tree.replaceChildren();
  }

  show(event) {
    const said = STATES[event.type];
    if (said) {
      this.state.textContent = said;
      this.state.classList.toggle("failed", event.type === "run.failed");
    }
    const branch = event.branch ?? "";
    switch (event.type) {
      case "text":
        if (!event.joined) this.write(branch, event.text, event.origin === "generated" ? "made" : "");
        break;
      case "delta":
        this.write(branch, event.text, "made");
        break;
      case "thinking":
        this.write(branch, event.text, "thought");
        break;
      case "message.opened":
        this.write(branch, `${this.texts.has(branch) ? "\n" : ""}${event.role}: `, "");
        break;
      case "message.closed":
        this.write(branch, "\n", "");
        break;
      case "generated":
        this.note(branch, `gen ${event.name} (${event.finish})`);
        break;
      case "selected":
        this.write(branch, event.text, "made");
        this.note(branch, `select ${event.name} = `, event.text);
        break;
      case "bound":
        this.note(branch, `${event.name} = `, event.value);
        break;
      case "fork.opened":
        this.note(branch, `fork into ${event.width}`);
        break;
      case "branch.started":
        this.branchOf(branch, [event.name, event.item].filter((part) => part !== null && part !== undefined));
        break;
      case "branch.finished":
      case "call.finished":
      case "tool.finished":
        if (event.type !== "branch.finished") this.note(branch, `${event.type.split(".")[0]} ${event.name} done`);
        if (event.error) this.note(branch, `failed: ${event.error.message}`)?.classList.add("failed");
        break;
      case "tool.started":
        this.note(branch, `tool ${event.tool}`);
        break;
      case "call.started":
        this.note(branch, `call ${event.program}`);
        break;
      case "join.finished":
        this.note(branch, "joined");
        break;
    }
  }

  write(branch, text, kind) {
    if (!text) return;
    let box = this.texts.get(branch);
    if (!box) {
      const element = document.createElement("section");
      element.className = "branch";
      const title = document.createElement("h3");
      title.textContent = branch ? `Branch ${branch}` : "Main line";
      box = document.createElement("p");
      box.className = "text";
      element.append(title, box);
      this.boxes.append(element);
      this.texts.set(branch, box);
    }
    const last = box.lastChild;
    const low = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (last && last.className === kind) {
      last.append(text);
    } else {
      const piece = document.createElement("span");
      piece.className = kind;
      piece.append(text);
      box.append(piece);
    }
    if (low) box.scrollTop = box.scrollHeight;
  }

  /** The list of a branch in the tree, made with those above it. */
  branchOf(branch, about = []) {
    const known = this.nodes.get(branch);
    if (known) return known;
    if (!branch) {
      this.nodes.set("", this.tree);
      return this.tree;
    }
    const cut = branch.lastIndexOf("/");
    const parent = this.branchOf(cut < 0 ? "" : branch.slice(0, cut));
    const item = this.entry(parent, [`Branch ${branch}`, ...about.map(shortly)].join(" · "));
    if (!item) return parent;
    const node = document.createElement("ul");
    item.append(node);
    this.nodes.set(branch, node);
    return node;
  }

  note(branch, text, value) {
    const item = this.entry(this.branchOf(branch), text);
    if (item && value !== undefined) {
      const shown = document.createElement("span");
      shown.className = "value";
      shown.textContent = shortly(value);
      item.append(shown);
    }
    return item;
  }

  entry(list, text) {
    this.entries += 1;
    if (this.entries > MOST) {
      if (this.entries === MOST + 1) this.tree.append(Object.assign(document.createElement("li"), { textContent: "…" }));
      return null;
    }
    const item = document.createElement("li");
    item.append(text);
    list.append(item);
    return item;
  }
}

function shortly(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
