// Shows the OpenAPI description. Text is only set as text content, never as markup.

const base = new URL("..", document.querySelector("link[rel=stylesheet]").href);
const page = document.getElementById("page");
const list = document.getElementById("list");

function element(tag, text = "", attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function typeName(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map(String).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" or ");
  if (schema.type === "array") return `list of ${typeName(schema.items) || "anything"}`;
  return schema.format || schema.type || "anything";
}

function table(rows) {
  const body = element("table");
  for (const [name, kind, text] of rows) {
    const row = element("tr");
    row.append(element("th", name), element("td", kind), element("td", text));
    body.append(row);
  }
  return body;
}

function fieldsOf(schema) {
  return Object.entries(schema?.properties ?? {}).map(([name, field]) => {
    const fallback = field.default === undefined ? "" : `default ${JSON.stringify(field.default)}`;
    const required = (schema.required ?? []).includes(name) ? "required" : "";
    return [name, typeName(field), [required, field.description, fallback].filter(Boolean).join("; ")];
  });
}

function curl(method, path, example) {
  const url = `${base.href.replace(/\/$/, "")}${path}`;
  const body = example === undefined ? "" : ` \\\n  --json '${JSON.stringify(example)}'`;
  return `curl -X ${method} '${url}' -H "Authorization: Bearer $TIMEWRIGHT_KEY"${body}`;
}

function section(path, method, operation) {
  const id = operation.operationId ?? path;
  const part = element("section", "", { id });
  const line = element("p");
  line.append(element("code", method.toUpperCase(), { class: "method" }), " ", element("code", path));
  const name = operation["x-timewright-operation"] ?? path;
  part.append(element("h2", name), line, element("p", operation.summary ?? ""));
  if (operation.description) part.append(element("p", operation.description));
  const scope = operation["x-timewright-scope"];
  if (scope) part.append(element("p", `needs the scope ${scope}`, { class: "scope" }));
  const parameters = (operation.parameters ?? []).map((one) => [
    one.name,
    typeName(one.schema ?? one.content?.["application/json"]?.schema),
    [one.in, one.required ? "required" : "", one.description].filter(Boolean).join("; "),
  ]);
  if (parameters.length) part.append(element("h3", "Parameters"), table(parameters));
  const body = operation.requestBody?.content["application/json"];
  if (body) part.append(element("h3", "Body"), table(fieldsOf(body.schema)));
  const example = Object.values(body?.examples ?? {})[0]?.value;
  part.append(element("h3", "Try"), element("pre", curl(method.toUpperCase(), path, body ? example ?? {} : undefined)));
  const answer = operation.responses?.["200"]?.content?.["application/json"]?.schema;
  if (answer?.properties) part.append(element("h3", "Answer"), table(fieldsOf(answer)));
  return part;
}

function schemas(shared) {
  const part = element("section", "", { id: "schemas" });
  part.append(element("h2", "Schemas"));
  for (const [name, schema] of Object.entries(shared)) {
    part.append(element("h3", name, { id: `part-${name}` }), table(fieldsOf(schema)));
  }
  return part;
}

function problems(known) {
  const part = element("section", "", { id: "problems" });
  part.append(element("h2", "Problems"), element("p", "Problem codes with their status."));
  for (const { code, status, means } of known) {
    part.append(element("h3", `${code} · ${status}`, { id: code }), element("p", means));
  }
  return part;
}

function show(document_) {
  page.replaceChildren();
  list.replaceChildren();
  const byTag = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "system";
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push([path, method, operation]);
    }
  }
  for (const [tag, rows] of [...byTag].sort()) {
    list.append(element("strong", tag));
    for (const [path, method, operation] of rows) {
      const id = operation.operationId ?? path;
      const name = operation["x-timewright-operation"] ?? path;
      list.append(element("a", name, { href: `#${id}` }));
      page.append(section(path, method, operation));
    }
  }
  page.append(problems(document_["x-timewright-problems"]), schemas(document_.components.schemas));
  if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

document.getElementById("find").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const part of page.querySelectorAll("section")) part.hidden = !part.textContent.toLowerCase().includes(wanted);
  for (const link of list.querySelectorAll("a")) link.hidden = !link.textContent.toLowerCase().includes(wanted);
});

const answer = await fetch(new URL("openapi.json", base), { credentials: "same-origin" });
if (answer.ok) show(await answer.json());
else page.replaceChildren(element("p", `The description could not be loaded: ${answer.status}.`));
