// A form from a program's input schema: one field for each input.

let count = 0;

/** { fields, read }: elements, and a function that gives what stands in them. */
export function formOf(schema) {
  const required = new Set(schema.required ?? []);
  const parts = Object.entries(schema.properties ?? {}).map(([name, part]) => fieldOf(name, part, required.has(name)));
  const read = () => {
    const values = {};
    for (const part of parts) {
      const value = part.read();
      if (value !== undefined) values[part.name] = value;
    }
    return values;
  };
  return { fields: parts.map((part) => part.element), read };
}

function fieldOf(name, schema, required) {
  const { control, read } = controlOf(schema, required);
  const id = `field-${(count += 1)}`;
  control.id = id;
  const label = document.createElement("label");
  label.htmlFor = id;
  label.textContent = required ? name : `${name} (optional)`;
  const element = document.createElement("div");
  element.className = "field";
  element.append(label);
  const hint = hintOf(schema);
  if (hint) {
    const note = document.createElement("span");
    note.className = "quiet";
    note.id = `${id}-note`;
    note.textContent = hint;
    control.setAttribute("aria-describedby", note.id);
    element.append(note);
  }
  element.append(control);
  return { name, element, read };
}

function kindOf(schema) {
  const kinds = [schema.type ?? []].flat().filter((kind) => kind !== "null");
  return schema.enum ? "enum" : kinds.length === 1 ? kinds[0] : "json";
}

function controlOf(schema, required) {
  const kind = kindOf(schema);
  if (kind === "enum") return choice(schema, required);
  if (kind === "boolean") return choice({ enum: [true, false], default: schema.default }, required);
  if (kind === "number" || kind === "integer") return number(schema, kind, required);
  if (kind === "string") return text(schema, required);
  return json(schema, kind, required);
}

function choice(schema, required) {
  const control = document.createElement("select");
  control.required = required;
  const blank = new Option(schema.default === undefined ? "" : `default: ${JSON.stringify(schema.default)}`, "");
  control.append(blank, ...schema.enum.map((value, place) => new Option(String(value), String(place))));
  return { control, read: () => (control.value === "" ? undefined : schema.enum[Number(control.value)]) };
}

function number(schema, kind, required) {
  const control = document.createElement("input");
  control.type = "number";
  control.step = kind === "integer" ? "1" : "any";
  control.required = required;
  if (schema.minimum !== undefined) control.min = String(schema.minimum);
  if (schema.maximum !== undefined) control.max = String(schema.maximum);
  if (schema.default !== undefined) control.placeholder = String(schema.default);
  return { control, read: () => (control.value === "" ? undefined : Number(control.value)) };
}

function text(schema, required) {
  const control = document.createElement(schema.writeOnly ? "input" : "textarea");
  if (schema.writeOnly) {
    control.type = "password";
    control.autocomplete = "off";
  } else {
    control.rows = schema.maxLength !== undefined && schema.maxLength <= 120 ? 1 : 4;
  }
  control.required = required && (schema.minLength ?? 0) > 0;
  if (schema.minLength) control.minLength = schema.minLength;
  if (schema.maxLength !== undefined) control.maxLength = schema.maxLength;
  if (schema.default !== undefined) control.placeholder = String(schema.default);
  return { control, read: () => (control.value === "" && !required ? undefined : control.value) };
}

function json(schema, kind, required) {
  const control = document.createElement("textarea");
  control.className = "json";
  control.rows = 4;
  control.required = required;
  control.spellcheck = false;
  control.placeholder = schema.default !== undefined ? JSON.stringify(schema.default) : kind === "object" ? "{}" : "[]";
  const parsed = () => (control.value.trim() === "" ? undefined : JSON.parse(control.value));
  control.addEventListener("input", () => {
    let wrong = "";
    try {
      parsed();
    } catch (error) {
      wrong = `This is not JSON: ${error.message}`;
    }
    control.setCustomValidity(wrong);
  });
  return { control, read: parsed };
}

function hintOf(schema) {
  const kind = kindOf(schema);
  const form = kind === "array" ? "JSON list" : kind === "object" ? "JSON object" : kind === "json" ? "JSON" : "";
  return [schema.description, form].filter(Boolean).join(" · ");
}
