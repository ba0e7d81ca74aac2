// Reads the description of the API and shows it; text is only ever set as text.

const base = new URL("..", document.querySelector("link[rel=stylesheet]").href);
const page = document.getElementById("page");
const list = document.getElementById("list");

function made(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function kindOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map(String).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.map(kindOf).join(" or ");
  if (schema.type === "array") return `list of ${kindOf(schema.items) || "anything"}`;
  return schema.format || schema.type || "anything";
}

function table(rows) {
  const body = made("table");
  for (const [name, kind, said] of rows) {
    const row = made("tr");
    row.append(made("th", name), made("td", kind), made("td", said));
    body.append(row);
  }
  return body;
}

function fieldsOf(schema) {
  return Object.entries(schema?.properties ?? {}).map(([name, field]) => {
    const fallback = field.default === undefined ? "" : `default ${JSON.stringify(field.default)}`;
    const needed = (schema.required ?? []).includes(name) ? "needed" : "";
    return [name, kindOf(field), [needed, field.description, fallback].filter(Boolean).join("; ")];
  });
}

function curl(method, path, example) {
  const url = `${base.href.replace(/\/$/, "")}${path}`;
  const body = example === undefined ? "" : ` \\\n  --json '${JSON.stringify(example)}'`;
  return `curl -X ${method} '${url}' -H "Authorization: Bearer $TIMEWRIGHT_KEY"${body}`;
}

function section(path, method, operation) {
  const id = operation.operationId ?? path;
  const part = made("section", "", { id });
  const line = made("p");
  line.append(made("code", method.toUpperCase(), { class: "method" }), " ", made("code", path));
  const name = operation["x-timewright-operation"] ?? path;
  part.append(made("h2", name), line, made("p", operation.summary ?? ""));
  if (operation.description) part.append(made("p", operation.description));
  const scope = operation["x-timewright-scope"];
  if (scope) part.append(made("p", `needs the scope ${scope}`, { class: "scope" }));
  const asked = (operation.parameters ?? []).map((one) => [
    one.name,
    kindOf(one.schema ?? one.content?.["application/json"]?.schema),
    [one.in, one.required ? "needed" : "", one.description].filter(Boolean).join("; "),
  ]);
  if (asked.length) part.append(made("h3", "Parameters"), table(asked));
  const body = operation.requestBody?.content["application/json"];
  if (body) part.append(made("h3", "Body"), table(fieldsOf(body.schema)));
  const example = Object.values(body?.examples ?? {})[0]?.value;
  part.append(made("h3", "Try"), made("pre", curl(method.toUpperCase(), path, body ? example ?? {} : undefined)));
  const answer = operation.responses?.["200"]?.content?.["application/json"]?.schema;
  if (answer?.properties) part.append(made("h3", "Answer"), table(fieldsOf(answer)));
  return part;
}

function schemas(shared) {
  const part = made("section", "", { id: "schemas" });
  part.append(made("h2", "Parts"));
  for (const [name, schema] of Object.entries(shared)) {
    part.append(made("h3", name, { id: `part-${name}` }), table(fieldsOf(schema)));
  }
  return part;
}

function problems(known) {
  const part = made("section", "", { id: "problems" });
  part.append(made("h2", "Problems"), made("p", "What a refusal's code means, with its status."));
  for (const { code, status, means } of known) {
    part.append(made("h3", `${code} · ${status}`, { id: code }), made("p", means));
  }
  return part;
}

function show(document_) {
  page.replaceChildren();
  list.replaceChildren();
  const byTag = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "house";
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push([path, method, operation]);
    }
  }
  for (const [tag, rows] of [...byTag].sort()) {
    list.append(made("strong", tag));
    for (const [path, method, operation] of rows) {
      const id = operation.operationId ?? path;
      const name = operation["x-timewright-operation"] ?? path;
      list.append(made("a", name, { href: `#${id}` }));
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
else page.replaceChildren(made("p", `The description cannot be read: ${answer.status}.`));
