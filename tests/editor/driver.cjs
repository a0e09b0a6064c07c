// Runs the editors' YAML language service in this process, without an editor.
//
// stdin:  {"schema": {...}, "jobs": [{"do": "validate" | "complete" | "hover", "text": "...", "line": 0, "character": 0}]}
// stdout: one result per job: problems [{line, character, message, severity}], completion items [{label, insert, help}],
//         or hover text. Lines and characters count from 0, as in the protocol of language servers.
"use strict";

const { TextDocument } = require("vscode-languageserver-textdocument");
const base = "yaml-language-server/out/server/src/";
const { getLanguageService } = require(`${base}languageservice/yamlLanguageService.js`);
const { SettingsState } = require(`${base}yamlSettings.js`);

const SCHEMA_URI = "file:///sglspec-v1.schema.json";

const COMPLETION_ITEM = { snippetSupport: true, documentationFormat: ["markdown"] };

function startService(schema) {
  const settings = new SettingsState();
  const copy = JSON.stringify(schema); // the service resolves references inside the object that it is given
  settings.schemaStoreEnabled = false;
  const service = getLanguageService({
    // whatever a document's first line or `$schema` names: nothing is fetched in tests
    schemaRequestService: () => Promise.resolve(copy),
    workspaceContext: { resolveRelativePath: (path) => path },
    yamlSettings: settings,
    clientCapabilities: { textDocument: { completion: { completionItem: COMPLETION_ITEM } } },
  });
  service.configure({
    validate: true,
    hover: true,
    completion: true,
    schemas: [{ uri: SCHEMA_URI, fileMatch: ["*.sglspec.yaml"], schema }],
  });
  return { service, settings };
}

function documentOf(settings, text, index) {
  const document = TextDocument.create(`file:///${index}.sglspec.yaml`, "yaml", 1, text);
  settings.documents = { get: () => document, all: () => [document] };
  return document;
}

async function perform({ service, settings }, job, index) {
  const document = documentOf(settings, job.text, index);
  const position = { line: job.line || 0, character: job.character || 0 };
  if (job.do === "complete") {
    const list = await service.doComplete(document, position, false);
    return list.items.map((item) => ({
      label: item.label,
      insert: item.textEdit ? item.textEdit.newText : item.insertText,
      help: typeof item.documentation === "object" ? item.documentation.value : item.documentation,
    }));
  }
  if (job.do === "hover") {
    const hover = await service.doHover(document, position);
    return hover ? hover.contents.value : "";
  }
  const started = process.hrtime.bigint();
  const problems = await service.doValidation(document, false);
  const milliseconds = Number(process.hrtime.bigint() - started) / 1e6;
  return {
    milliseconds,
    problems: problems.map(({ range, message, severity }) => ({ ...range.start, message, severity })),
  };
}

async function main() {
  let input = "";
  for await (const chunk of process.stdin) input += chunk;
  const { schema, jobs } = JSON.parse(input);
  const state = startService(schema);
  const results = [];
  for (const [index, job] of jobs.entries()) results.push(await perform(state, job, index));
  process.stdout.write(JSON.stringify(results));
}

main().catch((error) => {
  process.stderr.write(`${error.stack || error}\n`);
  process.exit(1);
});
