// Create DOM nodes, and patch one tree into another without losing focus or scroll position.
// Text only ever becomes a text node, so user data cannot become markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "circle", "line", "text", "title", "polyline", "use"]);

/**
 * @typedef {any} Child a node, text, a list of them, or null for nothing
 *
 * Create an element. Properties that start with `on` are event handlers, `key` identifies a node across
 * paints.
 * @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const isSvg = SVG_TAGS.has(tag) || tag.startsWith("svg:");
  const node = isSvg ? document.createElementNS(SVG, tag.replace("svg:", "")) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) set(node, name, value);
  append(node, children);
  return node;
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) return listen(node, name.slice(2), value);
  if (name === "key") {
    node.__key = String(value);
    return;
  }
  if (name === "value" || name === "checked") {
    node[name] = value;
    node.__own = { ...(node.__own || {}), [name]: value };
    return;
  }
  if (name === "style") {
    node.setAttribute("data-style", JSON.stringify(value));
    Object.assign(node.style, value);
    return;
  }
  node.setAttribute(name, value === true ? "" : String(value));
}

function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// One listener per event type and node; a patch only replaces the callback.
function listen(node, kind, call) {
  node.__on = node.__on || {};
  if (!(kind in node.__on)) node.addEventListener(kind, dispatch);
  node.__on[kind] = call;
}

function dispatch(event) {
  const call = event.currentTarget.__on && event.currentTarget.__on[event.type];
  if (call) call(event);
}

/**
 * Make one tree equal to another, keeping the nodes that are in both.
 * @param {any} old @param {any} fresh @returns {any} the node that is in the document now
 */
function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.__key !== fresh.__key) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  attributes(old, fresh);
  handlers(old, fresh);
  childrenOf(old, fresh);
  return old;
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes])
    if (!fresh.hasAttribute(name) && name !== "open" && name !== "style") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (name !== "style" && name !== "open" && old.getAttribute(name) !== value)
      old.setAttribute(name, value);
  if (fresh.style && fresh.hasAttribute("data-style"))
    Object.assign(old.style, JSON.parse(fresh.getAttribute("data-style")));
  // Keep what the user is typing; only take over a value that the page itself has changed.
  for (const [name, value] of Object.entries(fresh.__own || {})) {
    if (document.activeElement !== old && (!old.__own || old.__own[name] !== value)) old[name] = value;
  }
  old.__own = fresh.__own;
}

function handlers(old, fresh) {
  for (const [kind, call] of Object.entries(fresh.__on || {})) listen(old, kind, call);
  for (const kind of Object.keys(old.__on || {}))
    if (!fresh.__on || !(kind in fresh.__on)) old.__on[kind] = null;
}

function childrenOf(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (child.__key !== undefined) keyed.set(child.__key, child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const kept =
      wanted.__key !== undefined
        ? keyed.get(wanted.__key)
        : place && place.__key === undefined
          ? place
          : null;
    if (kept) {
      if (kept !== place) old.insertBefore(kept, place);
      else place = place.nextSibling;
      const now = patch(kept, wanted);
      if (now !== kept && place === kept) place = now.nextSibling;
    } else {
      old.insertBefore(wanted, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/** @param {HTMLElement} holder @param {any} node its only child from now on */
export function replace(holder, node) {
  if (holder.firstElementChild && holder.childNodes.length === 1) patch(holder.firstElementChild, node);
  else holder.replaceChildren(node);
}
